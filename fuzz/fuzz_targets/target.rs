//! Wraps a function of arbitrary bytes as a target of cargo-fuzz; otherwise as a program that reads files,
//! such as inputs found by cargo-fuzz, and as a test that reads the seeds.

macro_rules! target {
    ($function:ident, $seeds:literal) => {
        #[cfg(fuzzing)]
        libfuzzer_sys::fuzz_target!(|bytes: &[u8]| $function(bytes));

        #[cfg(not(fuzzing))]
        fn main() {
            for path in std::env::args_os().skip(1) {
                $function(&std::fs::read(path).expect("a file"));
            }
        }

        #[cfg(test)]
        #[test]
        fn seeds_run_without_a_panic() {
            let mut seeds = 0;
            for seed in std::fs::read_dir(concat!("seeds/", $seeds)).expect("seeds") {
                $function(&std::fs::read(seed.expect("a seed").path()).expect("a seed"));
                seeds += 1;
            }
            assert!(seeds > 0);
        }
    };
}
