#!/usr/bin/env bash
# The array of 04_array.yaml as separate processes that talk over multicast on the loopback interface:
# a digitiser and an F-engine for each of four antennas, and one X-engine with beamformer for each half of
# the band. Paced at a thousandth of the real rate, so that two cores are enough.
#
# usage: multicast_array.sh [SECONDS]; the environment may set FXGRAPH, the program, and PORT.
set -euo pipefail
cd "$(dirname "$0")/.."
fxgraph=${FXGRAPH:-target/release/fxgraph}
port=${PORT:-7148}
antennas=4
rate=1712000
channels=256
seconds=${1:-8}

results=$(mktemp -d)
engines=()
for x in 0 1; do
    "$fxgraph" run flowgraphs/03_x_engine.yaml --set antennas=$antennas --set adc_sample_rate_hz=$rate \
        --set channels=$channels --set substreams=2 --set substream=$x --set "in=239.102.1.$x:$port" \
        --set "visibilities=239.102.2.$x:$port" --set "beam_x=239.102.3.$((2 * x)):$port" \
        --set "beam_y=239.102.3.$((2 * x + 1)):$port" --set heaps_per_dump=4 --set stop_after_senders=$antennas >"$results/$x" &
    engines+=($!)
done
for a in $(seq 0 $((antennas - 1))); do
    "$fxgraph" run --quiet flowgraphs/02_f_engine.yaml --set antenna="$a" --set antennas=$antennas \
        --set adc_sample_rate_hz=$rate --set channels=$channels --set gain=0.35 \
        --set "pol0=239.102.0.$((16 * a))+7:$port" --set "pol1=239.102.0.$((16 * a + 8))+7:$port" \
        --set "out=239.102.1.0+1:$port" --set stop_after_senders=1 &
    engines+=($!)
done
trap 'kill "${engines[@]}" 2>/dev/null || true; rm -rf "$results"' EXIT
sleep 1
# Timestamps are the present time: what counts is that they run at the same time, not when each one started.
for a in $(seq 0 $((antennas - 1))); do
    "$fxgraph" run --quiet flowgraphs/05_digitisers.yaml --set antenna="$a" --set adc_sample_rate_hz=$rate \
        --set seconds="$seconds" --set "pol0=239.102.0.$((16 * a))+7:$port" \
        --set "pol1=239.102.0.$((16 * a + 8))+7:$port" &
    engines+=($!)
done
# Everyone ends by itself when the digitisers stop.
for engine in "${engines[@]}"; do
    wait "$engine"
done
engines=()
for x in 0 1; do
    echo "X-engine $x"
    grep -E '^(x|in|beams) .* (dumps|heaps_received|heaps_missing|antenna_heaps)' "$results/$x" || {
        echo "  received nothing"
        exit 1
    }
done
echo "all engines ended"
