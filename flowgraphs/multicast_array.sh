#!/usr/bin/env bash
# The array of 04_array.yaml as separate processes that talk over multicast on the loopback interface:
# a digitiser and an F-engine for each of two antennas, and one X-engine with beamformer for each half of
# the band. Paced at a thousandth of the real rate, so that two cores are enough.
set -euo pipefail
cd "$(dirname "$0")/.."
fxgraph=${FXGRAPH:-target/release/fxgraph}
antennas=2
rate=1712000
channels=256
seconds=${1:-8}

engines=()
for x in 0 1; do
    "$fxgraph" run --quiet flowgraphs/03_x_engine.yaml --set antennas=$antennas --set adc_sample_rate_hz=$rate \
        --set channels=$channels --set substreams=2 --set substream=$x --set "in=239.102.1.$x:7148" \
        --set "visibilities=239.102.2.$x:7148" --set "beam_x=239.102.3.$((2 * x)):7148" \
        --set "beam_y=239.102.3.$((2 * x + 1)):7148" --set heaps_per_dump=4 &
    engines+=($!)
done
for a in $(seq 0 $((antennas - 1))); do
    "$fxgraph" run --quiet flowgraphs/02_f_engine.yaml --set antenna="$a" --set antennas=$antennas \
        --set adc_sample_rate_hz=$rate --set channels=$channels --set gain=0.35 \
        --set "pol0=239.102.0.$((16 * a))+7:7148" --set "pol1=239.102.0.$((16 * a + 8))+7:7148" \
        --set "out=239.102.1.0+1:7148" &
    engines+=($!)
done
trap 'kill "${engines[@]}" 2>/dev/null || true' EXIT
sleep 1
for a in $(seq 0 $((antennas - 1))); do
    "$fxgraph" run --quiet flowgraphs/05_digitisers.yaml --set antenna="$a" --set adc_sample_rate_hz=$rate \
        --set seconds="$seconds" --set "pol0=239.102.0.$((16 * a))+7:7148" \
        --set "pol1=239.102.0.$((16 * a + 8))+7:7148" &
    engines+=($!)
done
# Everyone ends by itself when the digitisers stop.
for engine in "${engines[@]}"; do
    wait "$engine"
done
trap - EXIT
echo "all engines ended"
