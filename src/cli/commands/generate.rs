//! `fxgraph generate`

use crate::client::with_help;
use crate::examples;
use crate::failure::Failure;
use crate::flowgraph::registry;
use crate::terminal::Terminal;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// Creates a skeleton block or flowgraph
#[derive(Debug, clap::Args)]
pub struct Generate {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Creates a block that compiles, with a passing test, in a checkout of fxgraph or as a separate crate
    Block {
        /// Name of the kind: lower-case letters, digits and underscores
        #[arg(value_parser = parse_name)]
        name: String,

        /// Family (group of kinds) to add the block to: a directory of `blocks/`
        #[arg(long, value_name = "DIR", default_value = "blocks/util", conflicts_with = "alone")]
        into: PathBuf,

        /// Creates a separate crate in this directory, with a program that has this kind and all kinds of fxgraph
        #[arg(long = "crate", value_name = "DIR")]
        alone: Option<PathBuf>,

        /// Checkout of fxgraph that the crate uses
        #[arg(long, value_name = "DIR", default_value = ".", requires = "alone")]
        fxgraph: PathBuf,
    },
    /// Creates a flowgraph that runs, with a test
    Flowgraph {
        /// Name of the flowgraph: lower-case letters, digits and underscores
        #[arg(value_parser = parse_name)]
        name: String,

        /// Directory to write the flowgraph to [default: flowgraphs if it exists, else the current directory]
        #[arg(long, value_name = "DIR")]
        into: Option<PathBuf>,

        /// Copies an example, with the files that it names: `example:02_f_engine`
        #[arg(long, value_name = "EXAMPLE")]
        from: Option<String>,
    },
}

/// Placeholder names in the templates, which are Rust code that compiles.
const KIND: &str = "my_block";
const TYPE: &str = "MyBlock";

const BLOCK: [(&str, &str); 4] = [
    ("README.md", include_str!("../templates/block/README.md")),
    ("example.yaml", include_str!("../templates/block/example.yaml")),
    ("mod.rs", include_str!("../templates/block/mod.rs")),
    ("cpu.rs", include_str!("../templates/block/cpu.rs")),
];

/// Files of a separate crate. `FXGRAPH` is the placeholder for the checkout.
const CRATE: [(&str, &str); 10] = [
    ("Cargo.toml", include_str!("../templates/crate/Cargo.toml")),
    ("README.md", include_str!("../templates/crate/README.md")),
    ("src/main.rs", include_str!("../templates/crate/main.rs")),
    ("src/lib.rs", include_str!("../templates/crate/lib.rs")),
    ("src/my_block/README.md", include_str!("../templates/crate/page.md")),
    ("src/my_block/example.yaml", include_str!("../templates/crate/example.yaml")),
    ("src/my_block/mod.rs", include_str!("../templates/crate/mod.rs")),
    ("src/my_block/cpu.rs", include_str!("../templates/crate/cpu.rs")),
    ("src/my_block/tests.rs", include_str!("../templates/crate/tests.rs")),
    ("flowgraphs/my_block.yaml", include_str!("../templates/crate/flowgraph.yaml")),
];

const FLOWGRAPH: &str = include_str!("../templates/flowgraph.yaml");

impl Generate {
    pub fn execute(self, terminal: &mut Terminal) -> Result<(), Failure> {
        match self.what {
            What::Block { name, alone: Some(directory), fxgraph, .. } => {
                own_crate(&name, &directory, &fxgraph, terminal)
            }
            What::Block { name, into, .. } => block(&name, &into, terminal),
            What::Flowgraph { name, into, from } => {
                let default = || if Path::new("flowgraphs").is_dir() { "flowgraphs" } else { "." };
                let into = into.unwrap_or_else(|| default().into());
                flowgraph(&name, &into, from.as_deref(), terminal)
            }
        }
    }
}

/// Parses a name that is valid as a Rust module, a YAML key and a file name.
fn parse_name(text: &str) -> Result<String, String> {
    let starts = text.starts_with(|c: char| c.is_ascii_lowercase());
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if !starts || !text.chars().all(fits) || text.ends_with('_') || text.contains("__") {
        let rule = "use lower-case letters, digits and single underscores, starting with a letter";
        return Err(rule.to_owned());
    }
    const WORDS: &[&str] = &[
        "as", "async", "await", "box", "break", "const", "continue", "crate", "do", "dyn", "else",
        "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl", "in", "let", "lib",
        "loop", "macro", "match", "mod", "move", "mut", "priv", "pub", "ref", "return", "self",
        "static", "struct", "super", "trait", "true", "try", "type", "unsafe", "use", "virtual",
        "where", "while", "yield",
    ];
    if WORDS.contains(&text) {
        return Err(format!("`{text}` is reserved by Rust or by the crate"));
    }
    Ok(text.to_owned())
}

/// Returns the type name of a kind: `band_limiter` becomes `BandLimiter`.
fn type_name(name: &str) -> String {
    let words = name.split('_').map(|word| {
        let (first, rest) = word.split_at(1);
        first.to_ascii_uppercase() + rest
    });
    words.collect()
}

fn block(name: &str, into: &Path, terminal: &mut Terminal) -> Result<(), Failure> {
    // A family may be a crate of its own.
    let [module, library] = ["mod.rs", "lib.rs"].map(|file| into.join(file));
    let library = if library.exists() { &library } else { &module };
    let old = fs::read_to_string(library).map_err(|error| {
        let why = Failure::because(&format!("no family of blocks at `{}`", into.display()), &error);
        let help = "run this in a checkout of fxgraph, or give `--crate DIR`";
        Failure::failed(with_help(&why.first_line(), [help]))
    })?;
    if let Some(reason) = clash(name, &old, into) {
        return Err(Failure::failed(format!("invalid name `{name}`: {reason}")));
    }
    let new = register(&old, name).ok_or_else(|| {
        Failure::failed(format!("`{}` already has a module `{name}`", library.display()))
    })?;
    let directory = into.join(name);
    if directory.exists() {
        let text = format!("`{}` already exists; give another name", directory.display());
        return Err(Failure::failed(text));
    }
    let failed = |path: &Path| {
        let what = format!("cannot write `{}`", path.display());
        move |error: io::Error| Failure::because(&what, &error)
    };
    fs::create_dir(&directory).map_err(failed(&directory))?;
    let mut written = String::new();
    for (file, template) in BLOCK {
        let path = directory.join(file);
        let text = template.replace(TYPE, &type_name(name)).replace(KIND, name);
        fs::write(&path, text).map_err(failed(&path))?;
        written.push_str(&format!("wrote {}\n", path.display()));
    }
    fs::write(library, new).map_err(failed(library))?;
    terminal.results(&format!("{written}added `{name}` to {}\n", library.display()))?;
    terminal.note(&format!("next: cargo test -p fxgraph-blocks --lib {name}"));
    Ok(())
}

/// Writes a crate with a block `name` to `directory`, which uses the checkout `fxgraph`.
fn own_crate(
    name: &str,
    directory: &Path,
    fxgraph: &Path,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let failed = |path: &Path| {
        let what = format!("cannot write `{}`", path.display());
        move |error: io::Error| Failure::because(&what, &error)
    };
    let lock = fxgraph.join("Cargo.lock");
    let checkout =
        fxgraph.canonicalize().ok().filter(|_| fxgraph.join("src/cli/templates").exists());
    let Some(checkout) = checkout else {
        let text = format!("`{}` is not a checkout of fxgraph", fxgraph.display());
        return Err(Failure::failed(format!("{text}; give its path with `--fxgraph DIR`")));
    };
    if let Some(reason) =
        clash(name, "use fxgraph_blocks::kinds;\nuse fxgraph_cli::main;\n", directory)
    {
        return Err(Failure::failed(format!("invalid name `{name}`: {reason}")));
    }
    if directory.exists() {
        let text = format!("`{}` already exists; give a new directory", directory.display());
        return Err(Failure::failed(text));
    }
    let checkout = checkout.display().to_string();
    let mut written = String::new();
    for (file, template) in CRATE {
        let path = directory.join(file.replace(KIND, name));
        let parent = path.parent().unwrap_or(directory);
        fs::create_dir_all(parent).map_err(failed(parent))?;
        let text = template.replace(TYPE, &type_name(name)).replace(KIND, name);
        fs::write(&path, text.replace("FXGRAPH", &checkout)).map_err(failed(&path))?;
        written.push_str(&format!("wrote {}\n", path.display()));
    }
    // The dependency versions that fxgraph is tested with.
    let own_lock = directory.join("Cargo.lock");
    fs::copy(&lock, &own_lock).map_err(failed(&own_lock))?;
    terminal.results(&format!("{written}wrote {}\n", own_lock.display()))?;
    terminal.note(&format!("next: cd {} && cargo test", directory.display()));
    Ok(())
}

/// Splits `text` into identifiers.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// Returns the reason why a block of this name would not compile with `library` and with its own files.
fn clash(name: &str, library: &str, into: &Path) -> Option<String> {
    if registry().get(name).is_some() {
        return Some(format!("there is a kind `{name}` already"));
    }
    let is_module = |line: &str| {
        let mut words = words(line).skip_while(|word| ["pub", "crate", "super"].contains(word));
        words.next() == Some("mod") && words.next() == Some(name)
    };
    if library.lines().any(is_module) || into.join(format!("{name}.rs")).exists() {
        return Some(format!("the crate already has a module `{name}`"));
    }
    let kind = type_name(name);
    let is_code = |(file, _): &&(&str, &str)| Path::new(file).extension() == Some("rs".as_ref());
    let code = || BLOCK.iter().chain(&CRATE).filter(is_code).map(|(_, text)| *text);
    if code().flat_map(words).any(|word| word == kind) {
        return Some(format!("its type would hide `{kind}`, which blocks use"));
    }
    // As in `use fxgraph::Block`: a module of the same name would shadow the crate.
    let is_crate = ["std", "core", "alloc"].contains(&name)
        || code().chain([library]).any(|text| text.contains(&format!("use {name}::")));
    is_crate.then(|| format!("`{name}` is a crate that blocks use"))
}

/// Inserts `pub mod name` into `library` in alphabetical order; returns `None` if present.
fn register(library: &str, name: &str) -> Option<String> {
    let module = format!("pub mod {name};");
    let mut lines: Vec<&str> = library.lines().collect();
    if lines.contains(&module.as_str()) {
        return None;
    }
    let is_module = |line: &&str| line.starts_with("pub mod ");
    let after = lines.iter().rposition(|line| is_module(line) && *line < module.as_str());
    // Before all modules, or at the end of a family without modules.
    let first = || lines.iter().position(is_module).unwrap_or(lines.len());
    lines.insert(after.map_or_else(first, |at| at + 1), &module);
    Some(lines.join("\n") + "\n")
}

/// Writes the flowgraph `name` and what it includes: a skeleton, or a copy of the example `from`.
fn flowgraph(
    name: &str,
    into: &Path,
    from: Option<&str>,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let path = into.join(format!("{name}.yaml"));
    let mut files = vec![(path.clone(), FLOWGRAPH.replace("my_flowgraph", name))];
    if let Some(from) = from {
        let from = examples::name_in(from.as_ref()).unwrap_or(from);
        let example = examples::find(from).map_err(Failure::failed)?;
        // The name of the flowgraph is its first line.
        let rest = example.text.split_once('\n').map_or("", |(_, rest)| rest);
        files[0].1 = format!("flowgraph: {name}\n{rest}");
        let files_beside = example.files_beside().into_iter();
        files.extend(files_beside.map(|(file, text)| (into.join(file), text.to_owned())));
    }
    let is_there = |(path, text): &&(PathBuf, String)| {
        // A link that leads nowhere counts: it would be written through.
        path.symlink_metadata().is_ok() && fs::read_to_string(path).ok().as_ref() != Some(text)
    };
    if let Some((path, _)) = files.iter().find(is_there) {
        let text = format!("`{}` already exists; give another name or directory", path.display());
        return Err(Failure::failed(text));
    }
    let failed = |what: &str, path: &Path, error: &io::Error| {
        Failure::because(&format!("cannot {what} `{}`", path.display()), error)
    };
    for (path, text) in &files {
        let is_new = !path.exists();
        let parent = path.parent().unwrap_or(into);
        fs::create_dir_all(parent).map_err(|e| failed("create the directory", parent, &e))?;
        let written = fs::write(path, text);
        if written.is_err() && is_new {
            // A part of a file would be in the way of another attempt.
            let _ = fs::remove_file(path);
        }
        written.map_err(|e| failed("write", path, &e))?;
        terminal.results(&format!("wrote {}\n", path.display()))?;
    }
    terminal.note(&format!("next: fxgraph run {}", path.display()));
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const EMPTY: &str = "//! Blocks.\n\n";

    #[test]
    fn register_keeps_alphabetical_order() {
        let mut library = EMPTY.to_owned();
        for name in ["fft", "band_limiter", "pfb"] {
            library = register(&library, name).unwrap();
        }
        let modules = "pub mod band_limiter;\npub mod fft;\npub mod pfb;\n";
        assert_eq!(library, format!("{EMPTY}{modules}"));
    }

    #[test]
    fn register_rejects_a_second_registration() {
        let library = register(EMPTY, "fft").unwrap();
        assert_eq!(register(&library, "fft"), None);
    }

    #[test]
    fn clash_rejects_names_that_would_not_compile() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("layout.rs"), "").unwrap();
        let library = "pub(crate) mod axes;\nmod simd;\nuse fxgraph::KindEntry;\n";
        for name in ["axes", "simd", "layout", "block", "kind", "env", "box", "fxgraph", "std"] {
            assert!(clash(name, library, directory.path()).is_some(), "{name}");
        }
        for name in ["axis_swap", "gain_control", "sim", "decimate"] {
            assert_eq!(clash(name, library, directory.path()), None);
        }
    }

    #[test]
    fn parse_name_rejects_names_that_cannot_be_modules() {
        for name in ["", "9tails", "Fft", "a-b", "a__b", "a_", "../etc", "fn", "lib", "é"] {
            assert!(parse_name(name).is_err(), "{name}");
        }
        assert!(parse_name("pfb2_fine").is_ok());
    }
}
