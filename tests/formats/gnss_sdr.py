"""gnss-sdr on a file of complex samples of 8 bits, or on a pipe of 16 bits: which satellites it finds.

Usage: gnss_sdr.py FILE RATE_HZ CHANNELS [PRN]
       gnss_sdr.py --pipe PIPE RATE_HZ CHANNELS PRN,PRN,...    until the tracking of all these satellites has begun

Prints JSON: `tracked`, numbers of the GPS satellites whose tracking began; with PRN also `doppler_hz` and
`positive` of the first acquisition of this satellite.
"""

import json
import re
import subprocess
import sys
import threading
from pathlib import Path

import h5py

CONFIGURATION = """\
[GNSS-SDR]
GNSS-SDR.internal_fs_sps={rate}
SignalSource.filename={file}
SignalSource.sampling_frequency={rate}
{source}
SignalConditioner.implementation=Signal_Conditioner
InputFilter.implementation=Pass_Through
InputFilter.item_type=gr_complex
Resampler.implementation=Pass_Through
Resampler.item_type=gr_complex
Channels_1C.count={channels}
Channels.in_acquisition={channels}
Acquisition_1C.implementation=GPS_L1_CA_PCPS_Acquisition
Acquisition_1C.item_type=gr_complex
Acquisition_1C.coherent_integration_time_ms=1
Acquisition_1C.max_dwells=4
Acquisition_1C.pfa=0.000001
Acquisition_1C.doppler_max=5000
Acquisition_1C.doppler_step=250
Acquisition_1C.blocking=true
Acquisition_1C.dump={dump}
Acquisition_1C.dump_filename={directory}/acquisition
Acquisition_1C.dump_channel=0
Tracking_1C.implementation=GPS_L1_CA_DLL_PLL_Tracking
Tracking_1C.item_type=gr_complex
TelemetryDecoder_1C.implementation=GPS_L1_CA_Telemetry_Decoder
Observables.implementation=Hybrid_Observables
PVT.implementation=RTKLIB_PVT
PVT.positioning_mode=Single
"""

FILE = """\
SignalSource.implementation=File_Signal_Source
SignalSource.item_type=ibyte
SignalSource.samples=0
SignalSource.enable_throttle_control=false
DataTypeAdapter.implementation=Ibyte_To_Complex
"""
PIPE = """\
SignalSource.implementation=Fifo_Signal_Source
SignalSource.item_type=gr_complex
SignalSource.sample_type=ishort
DataTypeAdapter.implementation=Pass_Through
DataTypeAdapter.item_type=gr_complex
"""
COMMAND = ["gnss-sdr", "--config_file=gnss_sdr.conf"]


def of_pipe(directory, wanted):
    # gnss-sdr waits for more samples at the end of a pipe.
    command = ["stdbuf", "-oL", *COMMAND, f"--log_dir={directory}"]
    run = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    limit = threading.Timer(300, run.kill)
    limit.start()
    tracked = set()
    for line in run.stdout:
        tracked.update(int(number) for number in re.findall(r"GPS PRN (\d+)", line))
        if tracked >= wanted:
            run.kill()
    limit.cancel()
    print(json.dumps({"tracked": sorted(tracked)}))


def main():
    is_pipe = sys.argv[1] == "--pipe"
    file, rate, channels, *last = sys.argv[2:] if is_pipe else sys.argv[1:]
    prn = int(last[0]) if last and not is_pipe else None
    directory = Path.cwd()
    text = CONFIGURATION.format(
        source=PIPE if is_pipe else FILE,
        file=Path(file).resolve(), rate=rate, channels=channels, dump=str(prn is not None).lower(), directory=directory
    )
    if prn is not None:
        text += f"Channel0.signal=1C\nChannel0.satellite={prn}\n"
    Path("gnss_sdr.conf").write_text(text)
    if is_pipe:
        of_pipe(directory, {int(number) for number in last[0].split(",")})
        return
    run = subprocess.run(
        [*COMMAND, f"--log_dir={directory}"],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=True,
    )
    assert "program ended" in run.stdout, run.stdout
    found = {"tracked": sorted({int(number) for number in re.findall(r"GPS PRN (\d+)", run.stdout)})}
    if prn is not None:
        with h5py.File(sorted(directory.glob(f"acquisition_G_1C_ch_0_*_sat_{prn}.mat"))[0]) as dump:
            found["doppler_hz"] = float(dump["acq_doppler_hz"][()].item())
            found["positive"] = bool(dump["d_positive_acq"][()].item())
    print(json.dumps(found))


main()
