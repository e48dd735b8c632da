//! Reads a flowgraph file and the files that it includes.

use crate::text::document::{Declared, Document, Template, document, doubled, text};
use crate::text::parse::{MAX_BYTES, parse};
use fxgraph_core::access::FileAccess;
use fxgraph_core::diagnostic::Sources;
use fxgraph_core::diagnostic::{Diagnostic, Span, codes};
use fxgraph_core::tree::Key;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Limit of the files of one flowgraph.
const MAX_FILES: usize = 64;
/// Limit of the bytes of all its files.
const MAX_ALL_BYTES: usize = 2 * MAX_BYTES;

/// Reason why a file cannot be read.
pub(crate) struct Unread {
    pub(crate) code: &'static str,
    pub(crate) reason: String,
}

/// Reads the text of a file of at most [`MAX_BYTES`].
pub(crate) fn read(file: std::io::Result<File>) -> Result<String, Unread> {
    let unread = |reason: String| Unread { code: codes::UNREADABLE, reason };
    let cannot = |error: std::io::Error| unread(reason(&error));
    let file = file.map_err(cannot)?;
    let length = file.metadata().map_err(cannot)?.len();
    if length > MAX_BYTES as u64 {
        let reason = format!("it must have at most {MAX_BYTES} bytes, got {length}");
        return Err(Unread { code: codes::LIMIT, reason });
    }
    let mut bytes = Vec::new();
    file.take(MAX_BYTES as u64).read_to_end(&mut bytes).map_err(cannot)?;
    text_of(bytes)
}

/// Text of `bytes`, which were read from standard input.
pub(crate) fn standard_input(bytes: Result<&[u8], &std::io::Error>) -> Result<String, Unread> {
    let unread = |error| Unread { code: codes::UNREADABLE, reason: reason(error) };
    let bytes = bytes.map_err(unread)?;
    if bytes.len() > MAX_BYTES {
        let reason = format!("it must have at most {MAX_BYTES} bytes");
        return Err(Unread { code: codes::LIMIT, reason });
    }
    text_of(bytes.to_vec())
}

fn text_of(bytes: Vec<u8>) -> Result<String, Unread> {
    let unread = |reason: String| Unread { code: codes::UNREADABLE, reason };
    String::from_utf8(bytes).map_err(|error| {
        let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = good.split(|byte| *byte == b'\n').count();
        unread(format!("it is not UTF-8 text at line {line}, byte {} of the file", good.len()))
    })
}

fn reason(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "there is no such file".to_owned(),
        std::io::ErrorKind::PermissionDenied if error.raw_os_error().is_some() => {
            "permission denied".to_owned()
        }
        _ => error.to_string().to_lowercase(),
    }
}

/// The main file's document with the parameters and templates of all included files. Paths that the main file
/// includes are relative to `directory`, those of other files to their own directories.
pub(crate) fn gather(
    (main, directory): (u32, &Path),
    access: &FileAccess,
    sources: &mut Sources,
    problems: &mut Vec<Diagnostic>,
) -> Option<Document> {
    let mut all = load_file(main, true, sources, problems)?;
    let parameters = std::mem::take(&mut all.parameters);
    let templates = std::mem::take(&mut all.templates);
    let mut visit = Visit {
        main: (main, directory),
        access,
        sources,
        problems,
        done: Vec::new(),
        parameters: Vec::new(),
        templates: Vec::new(),
    };
    let path = visit.path(main);
    let mut way = vec![path];
    let includes = all.includes.clone();
    visit.includes(main, &includes, &mut way);
    visit.parameters(parameters);
    visit.templates(templates);
    (all.parameters, all.templates) = (visit.parameters, visit.templates);
    Some(all)
}

fn load_file(
    file: u32,
    is_main: bool,
    sources: &Sources,
    problems: &mut Vec<Diagnostic>,
) -> Option<Document> {
    let text = &sources.get(file)?.text;
    match parse(file, text) {
        Ok(root) => Some(document(&root, is_main, problems)),
        Err(found) => {
            problems.extend(found);
            None
        }
    }
}

struct Visit<'a> {
    /// The main file, and the directory of its includes.
    main: (u32, &'a Path),
    access: &'a FileAccess,
    sources: &'a mut Sources,
    problems: &'a mut Vec<Diagnostic>,
    /// Files that were read already.
    done: Vec<PathBuf>,
    parameters: Vec<Declared>,
    templates: Vec<Template>,
}

impl Visit<'_> {
    fn path(&self, file: u32) -> PathBuf {
        let path = self.sources.get(file).map(|source| source.path.clone()).unwrap_or_default();
        path.canonicalize().unwrap_or(path)
    }

    fn includes(
        &mut self,
        file: u32,
        includes: &[fxgraph_core::tree::Node],
        way: &mut Vec<PathBuf>,
    ) {
        let beside = self.sources.get(file).and_then(|source| source.path.parent());
        let root = self.access.include_root();
        let directory = match self.main {
            // The root is that directory already.
            (main, _) if main == file && self.access.is_limited() => PathBuf::new(),
            (main, directory) if main == file => directory.to_path_buf(),
            _ => beside.map(Path::to_path_buf).unwrap_or_default(),
        };
        for node in includes {
            let Some(relative) = text(node, self.problems) else { continue };
            self.include((&root, &directory.join(&relative)), &relative, node.span, way);
        }
    }

    /// Includes the file at `named`; a relative path begins at `root`.
    fn include(
        &mut self,
        (root, named): (&Path, &Path),
        relative: &str,
        span: Span,
        way: &mut Vec<PathBuf>,
    ) {
        let path = &root.join(named);
        let canonical = path.canonicalize().unwrap_or_else(|_| path.clone());
        if way.contains(&canonical) {
            self.problems.push(
                Diagnostic::error(
                    codes::INCLUDE_CYCLE,
                    span,
                    format!("`{relative}` includes this file, directly or through others"),
                )
                .label("closes the cycle")
                .help("move the templates and parameters that both need to a third file"),
            );
            return;
        }
        // Two files may include the same third one.
        if self.done.contains(&canonical) {
            return;
        }
        if self.sources.iter().count() >= MAX_FILES {
            let message = format!("a flowgraph must have at most {MAX_FILES} files");
            let help = "move the templates and parameters of several files to one";
            self.problems.push(Diagnostic::error(codes::LIMIT, span, message).help(help));
            return;
        }
        let text = match read(self.access.open_include(path)) {
            Ok(text) => text,
            Err(Unread { code, reason }) => {
                self.problems.push(
                    Diagnostic::error(
                        code,
                        span,
                        format!("cannot read `{}`: {reason}", named.display()),
                    )
                    .label("included here")
                    .help("give the path relative to the file that includes it"),
                );
                return;
            }
        };
        self.done.push(canonical.clone());
        let all = self.sources.iter().map(|source| source.text.len()).sum::<usize>() + text.len();
        if all > MAX_ALL_BYTES {
            let message = format!(
                "the files of a flowgraph must have at most {MAX_ALL_BYTES} bytes together, got {all}"
            );
            let problem = Diagnostic::error(codes::LIMIT, span, message).label("included here");
            self.problems.push(problem.help("put arrays into NumPy files: `{npy: FILE}`"));
            return;
        }
        let file = self.sources.add(named, text);
        let Some(document) = load_file(file, false, self.sources, self.problems) else { return };
        way.push(canonical);
        self.includes(file, &document.includes, way);
        way.pop();
        self.parameters(document.parameters);
        self.templates(document.templates);
    }

    fn parameters(&mut self, more: Vec<Declared>) {
        for parameter in more {
            let known = self.parameters.iter().map(|p| &p.key);
            if let Some(problem) = clash("parameter", &parameter.key, known) {
                self.problems.push(problem);
            } else {
                self.parameters.push(parameter);
            }
        }
    }

    fn templates(&mut self, more: Vec<Template>) {
        for template in more {
            let known = self.templates.iter().map(|t| &t.key);
            if let Some(problem) = clash("template", &template.key, known) {
                self.problems.push(problem);
            } else {
                self.templates.push(template);
            }
        }
    }
}

fn clash<'a>(
    what: &str,
    key: &Key,
    mut known: impl Iterator<Item = &'a Key>,
) -> Option<Diagnostic> {
    known.find(|k| k.text == key.text).map(|first| doubled(what, key, first.span))
}
