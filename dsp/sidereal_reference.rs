/// Values of erfa, without motion of the pole, and of pyuvdata, at latitude -30.7 and longitude 21.4 degrees.
#[derive(Clone, Copy, Debug)]
struct Reference {
    unix: f64,
    ut1_minus_utc: f64,
    gast: f64,
    icrs: [f64; 2],
    apparent: [f64; 2],
    north: f64,
}

const REFERENCES: [Reference; 6] = [
    Reference {
        unix: 946_728_000.0,
        ut1_minus_utc: 0.355_036_550_0,
        gast: 4.894_925_212_9,
        icrs: [1.0, -0.5],
        apparent: [1.000_026_518_1, -0.500_076_423_8],
        north: -0.000_047_891_4,
    },
    Reference {
        unix: 1_215_055_211.0,
        ut1_minus_utc: -0.445_130_140_7,
        gast: 5.787_030_318_9,
        icrs: [5.9, 0.9],
        apparent: [5.901_602_597_6, 0.900_715_850_7],
        north: -0.000_487_158_5,
    },
    Reference {
        unix: 1_483_138_800.0,
        ut1_minus_utc: -0.407_733_937_5,
        gast: 1.480_176_378_8,
        icrs: [3.1, -1.2],
        apparent: [3.103_772_870_1, -1.201_548_247_0],
        north: 0.000_006_072_1,
    },
    Reference {
        unix: 1_616_262_310.0,
        ut1_minus_utc: -0.171_775_433_8,
        gast: 1.479_429_427_2,
        icrs: [0.02, 0.3],
        apparent: [0.024_584_308_1, 0.301_992_906_4],
        north: 0.000_003_776_6,
    },
    Reference {
        unix: 1_727_740_800.0,
        ut1_minus_utc: 0.059_028_700_0,
        gast: 0.178_366_784_0,
        icrs: [4.4, -0.8],
        apparent: [4.407_804_238_3, -0.800_805_085_0],
        north: -0.003_245_499_3,
    },
    Reference {
        unix: 1_779_009_011.5,
        ut1_minus_utc: 0.025_833_161_8,
        gast: 0.220_522_099_1,
        icrs: [2.2, 1.3],
        apparent: [2.213_313_576_6, 1.298_581_312_1],
        north: 0.007_447_123_5,
    },
];
