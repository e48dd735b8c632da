//! Writes the list of kinds: one entry for every directory of a family that has an `example.yaml`, and the kinds whose
//! Cargo feature is off with the name of the feature.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR").map_err(io::Error::other)?);
    let mut entries = String::new();
    let mut absent = String::new();
    // A new family is a new directory here, and a new line in lib.rs.
    println!("cargo::rerun-if-changed=lib.rs");
    let families = fs::read_to_string(root.join("lib.rs"))?;
    for family in directories(&root)? {
        println!("cargo::rerun-if-changed={}", family.display());
        // A family may be a crate of its own.
        let [module, library] = ["mod.rs", "lib.rs"].map(|file| family.join(file));
        let kinds =
            fs::read_to_string(if library.exists() { library } else { module }).unwrap_or_default();
        for kind in directories(&family)? {
            println!("cargo::rerun-if-changed={}", kind.display());
            if kind.join("example.yaml").exists() {
                let (family, kind) = (name(&family), name(&kind));
                let features = [feature(&families, &family), feature(&kinds, &kind)];
                if let Some(feature) =
                    features.into_iter().flatten().find(|feature| !is_on(feature))
                {
                    absent.push_str(&format!("    ({kind:?}, {feature:?}),\n"));
                    continue;
                }
                let type_name = type_name(&kind);
                let path = format!("{family}::{kind}::{type_name}");
                entries
                    .push_str(&format!("    KindEntry::of::<{path}>().in_family({family:?}),\n"));
            }
        }
    }
    let list = PathBuf::from(env::var("OUT_DIR").map_err(io::Error::other)?).join("kinds.rs");
    fs::write(list, format!("(vec![\n{entries}], &[\n{absent}])\n"))
}

/// Feature that `#[cfg(feature = "...")]` before `pub mod MODULE;`, or before the `pub use` of a crate, asks for in the
/// source `text`.
fn feature<'a>(text: &'a str, module: &str) -> Option<&'a str> {
    let (before, _) = text
        .split_once(&format!("\npub mod {module};"))
        .or_else(|| text.split_once(&format!("\npub use fxgraph_{module} as {module};")))?;
    let (_, condition) = before.rsplit_once('\n')?;
    condition.strip_prefix("#[cfg(feature = \"")?.strip_suffix("\")]")
}

/// Whether this build has the feature.
fn is_on(feature: &str) -> bool {
    env::var_os(format!("CARGO_FEATURE_{}", feature.to_ascii_uppercase())).is_some()
}

/// Directories in `parent`, in alphabetical order.
fn directories(parent: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(parent)? {
        let path = entry?.path();
        if path.is_dir() {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

fn name(directory: &Path) -> String {
    directory.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// `band_limiter` as a type: `BandLimiter`.
fn type_name(name: &str) -> String {
    let words = name.split('_').filter(|word| !word.is_empty());
    words.map(|word| word[..1].to_ascii_uppercase() + &word[1..]).collect()
}
