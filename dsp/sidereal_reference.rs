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
        unix: 946728000.0,
        ut1_minus_utc: 0.3550365500,
        gast: 4.8949252129,
        icrs: [1.0, -0.5],
        apparent: [1.0000265181, -0.5000764238],
        north: -0.0000478914,
    },
    Reference {
        unix: 1215055211.0,
        ut1_minus_utc: -0.4451301407,
        gast: 5.7870303189,
        icrs: [5.9, 0.9],
        apparent: [5.9016025976, 0.9007158507],
        north: -0.0004871585,
    },
    Reference {
        unix: 1483138800.0,
        ut1_minus_utc: -0.4077339375,
        gast: 1.4801763788,
        icrs: [3.1, -1.2],
        apparent: [3.1037728701, -1.2015482470],
        north: 0.0000060721,
    },
    Reference {
        unix: 1616262310.0,
        ut1_minus_utc: -0.1717754338,
        gast: 1.4794294272,
        icrs: [0.02, 0.3],
        apparent: [0.0245843081, 0.3019929064],
        north: 0.0000037766,
    },
    Reference {
        unix: 1727740800.0,
        ut1_minus_utc: 0.0590287000,
        gast: 0.1783667840,
        icrs: [4.4, -0.8],
        apparent: [4.4078042383, -0.8008050850],
        north: -0.0032454993,
    },
    Reference {
        unix: 1779009011.5,
        ut1_minus_utc: 0.0258331618,
        gast: 0.2205220991,
        icrs: [2.2, 1.3],
        apparent: [2.2133135766, 1.2985813121],
        north: 0.0074471235,
    },
];
