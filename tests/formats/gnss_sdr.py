"""gnss-sdr on a file of complex samples of 8 bits: which satellites it finds.

Usage: gnss_sdr.py FILE RATE_HZ CHANNELS [PRN]

Prints JSON: `tracked`, numbers of the GPS satellites whose tracking began; with PRN also `doppler_hz` and
`positive` of the first acquisition of this satellite.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

import h5py

CONFIGURATION = """\
[GNSS-SDR]
GNSS-SDR.internal_fs_sps={rate}
SignalSource.implementation=File_Signal_Source
SignalSource.filename={file}
SignalSource.item_type=ibyte
SignalSource.sampling_frequency={rate}
SignalSource.samples=0
SignalSource.enable_throttle_control=false
SignalConditioner.implementation=Signal_Conditioner
DataTypeAdapter.implementation=Ibyte_To_Complex
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


def main():
    file, rate, channels = sys.argv[1:4]
    prn = int(sys.argv[4]) if len(sys.argv) > 4 else None
    directory = Path.cwd()
    text = CONFIGURATION.format(
        file=Path(file).resolve(), rate=rate, channels=channels, dump=str(prn is not None).lower(), directory=directory
    )
    if prn is not None:
        text += f"Channel0.signal=1C\nChannel0.satellite={prn}\n"
    Path("gnss_sdr.conf").write_text(text)
    run = subprocess.run(
        ["gnss-sdr", "--config_file=gnss_sdr.conf", f"--log_dir={directory}"],
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
