//! Compilation of CUDA sources by NVRTC; needs no GPU.
#![allow(unsafe_code)] // calls of NVRTC, whose program handle this file owns

use super::CudaError;
use cudarc::nvrtc::{result::NvrtcError, sys};
use fxgraph_core::gpu::Source;
use sha2::{Digest, Sha256};
use std::ffi::{CString, c_char};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::OnceLock;

/// Result of a compilation.
pub struct Compiled {
    /// Machine code.
    pub cubin: Vec<u8>,
    /// Messages of the compiler: registers, spills and warnings.
    pub log: String,
}

/// Returns the major and minor version of NVRTC.
///
/// # Errors
/// If NVRTC cannot be loaded.
pub fn compiler_version() -> Result<(i32, i32), CudaError> {
    library()?;
    let (mut major, mut minor) = (0, 0);
    // SAFETY: two numbers to write to.
    check("querying NVRTC", unsafe { sys::nvrtcVersion(&raw mut major, &raw mut minor) })?;
    Ok((major, minor))
}

fn library() -> Result<(), CudaError> {
    static PRESENT: OnceLock<bool> = OnceLock::new();
    // SAFETY: the call loads the library and unloads it.
    if *PRESENT.get_or_init(|| unsafe { sys::is_culib_present() }) {
        return Ok(());
    }
    Err(CudaError::NoLibrary { library: "libnvrtc.so", purpose: "compiles GPU kernels" })
}

fn check(what: &'static str, result: sys::nvrtcResult) -> Result<(), CudaError> {
    result
        .result()
        .map_err(|NvrtcError(code)| CudaError::Library { what, reason: format!("{code:?}") })
}

/// Compiles `program`, which may include `headers`, for `architecture` (for example `sm_90a`), with
/// `defines` as macros.
///
/// # Errors
/// If NVRTC cannot be loaded, or the source does not compile.
pub fn compile(
    program: &Source,
    headers: &[Source],
    architecture: &str,
    defines: &[(&str, String)],
) -> Result<Compiled, CudaError> {
    library()?;
    let text = |text: &str| {
        CString::new(text).map_err(|_| CudaError::Compile {
            name: program.name.to_string(),
            log: "the source contains a zero byte".to_owned(),
        })
    };
    let (name, source) = (text(&program.name)?, text(&program.text)?);
    let texts = headers.iter().map(|h| text(&h.text)).collect::<Result<Vec<_>, _>>()?;
    let names = headers.iter().map(|h| text(&h.name)).collect::<Result<Vec<_>, _>>()?;
    let pointers = |list: &[CString]| list.iter().map(|s| s.as_ptr()).collect::<Vec<_>>();
    let options = options(architecture, defines, compiler_version()?.0);
    let options = options.iter().map(|o| text(o)).collect::<Result<Vec<_>, _>>()?;
    let (texts, names, options) = (pointers(&texts), pointers(&names), pointers(&options));
    let mut handle = Handle(std::ptr::null_mut());
    // SAFETY: all strings outlive the calls; counts are those of the lists.
    unsafe {
        let created = sys::nvrtcCreateProgram(
            &raw mut handle.0,
            source.as_ptr(),
            name.as_ptr(),
            headers.len() as i32,
            texts.as_ptr(),
            names.as_ptr(),
        );
        check("passing a kernel to NVRTC", created)?;
        let outcome = sys::nvrtcCompileProgram(handle.0, options.len() as i32, options.as_ptr());
        let log = handle.bytes(sys::nvrtcGetProgramLogSize, sys::nvrtcGetProgramLog)?;
        let log = String::from_utf8_lossy(&log).trim_end_matches('\0').trim().to_owned();
        if outcome == sys::nvrtcResult::NVRTC_ERROR_COMPILATION {
            return Err(CudaError::Compile { name: program.name.to_string(), log });
        }
        check("compiling a kernel", outcome)?;
        let cubin = handle.bytes(sys::nvrtcGetCUBINSize, sys::nvrtcGetCUBIN)?;
        Ok(Compiled { cubin, log })
    }
}

fn options(architecture: &str, defines: &[(&str, String)], major: i32) -> Vec<String> {
    // Sources include the given headers only, never files beside them; older versions do not know the option.
    let no_files = (major >= 12).then(|| "--no-source-include".to_owned());
    let fixed = [
        format!("--gpu-architecture={architecture}"),
        "--std=c++17".to_owned(),
        "-default-device".to_owned(),
        // For profilers and memory checkers.
        "-lineinfo".to_owned(),
        "--ptxas-options=-v".to_owned(),
    ];
    fixed
        .into_iter()
        .chain(no_files)
        .chain(defines.iter().map(|(name, value)| format!("-D{name}={value}")))
        .collect()
}

/// A program of NVRTC.
struct Handle(sys::nvrtcProgram);

type SizeOf = unsafe fn(sys::nvrtcProgram, *mut usize) -> sys::nvrtcResult;
type Get = unsafe fn(sys::nvrtcProgram, *mut c_char) -> sys::nvrtcResult;

impl Handle {
    /// # Safety
    /// The two functions must belong together.
    unsafe fn bytes(&self, size_of: SizeOf, get: Get) -> Result<Vec<u8>, CudaError> {
        let mut size = 0;
        // SAFETY: a number to write to.
        check("querying NVRTC", unsafe { size_of(self.0, &raw mut size) })?;
        let mut bytes = vec![0_u8; size];
        // SAFETY: as many bytes as the library asked for.
        check("querying NVRTC", unsafe { get(self.0, bytes.as_mut_ptr().cast()) })?;
        Ok(bytes)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: created by the library, destroyed once.
            let _ = unsafe { sys::nvrtcDestroyProgram(&raw mut self.0) };
        }
    }
}

/// Returns line and name of each `#include` in `text`; the name is empty if it is not in quotes or brackets, or if the
/// directive goes on in the next line. The text is searched, not preprocessed: an `#include` in an inactive `#if`, or at the
/// start of a line of a comment, counts too.
pub fn includes(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().filter_map(|(n, line)| Some((n + 1, included_name(line)?)))
}

/// The name that the line includes.
fn included_name(line: &str) -> Option<&str> {
    let signs = line.match_indices(['#', '%']);
    // Comments may be before the directive.
    let is_first = |before: &str| before.trim().is_empty() || before.trim_end().ends_with("*/");
    let mut directives = signs.filter(|(at, _)| is_first(&line[..*at])).map(|(at, _)| &line[at..]);
    directives.find_map(|directive| {
        let word = without_comments(directive.strip_prefix("%:").or(directive.strip_prefix('#'))?);
        let is_cut = |part: &str| "include".starts_with(part.trim_end());
        if word.starts_with("/*") || word.trim_end().strip_suffix('\\').is_some_and(is_cut) {
            return Some("");
        }
        let name = word.strip_prefix("include_next").or(word.strip_prefix("include"))?;
        let name = without_comments(name);
        let quoted = name.strip_prefix('"').and_then(|name| name.split_once('"'));
        let quoted =
            quoted.or_else(|| name.strip_prefix('<').and_then(|name| name.split_once('>')));
        Some(quoted.map_or("", |(name, _)| name))
    })
}

/// The text behind spaces and comments that end in this line.
fn without_comments(text: &str) -> &str {
    let text = text.trim_start();
    let comment = text.strip_prefix("/*").and_then(|comment| comment.split_once("*/"));
    comment.map_or(text, |(_, text)| without_comments(text))
}

/// Returns those of `headers` that `program` includes, directly or through others, as [`includes`] finds them.
pub(super) fn included<'a>(program: &'a Source, headers: &'a [Source]) -> Vec<&'a Source> {
    let mut found = vec![program];
    let mut next = 0;
    while let Some(source) = found.get(next).copied() {
        next += 1;
        for header in headers {
            if !found.contains(&header)
                && includes(&source.text).any(|(_, name)| name == header.name)
            {
                found.push(header);
            }
        }
    }
    found.split_off(1)
}

/// Calls [`compile`], or returns an earlier result for the same sources, options and compiler from the user's cache
/// directory.
pub(super) fn compile_cached(
    program: &Source,
    headers: &[Source],
    architecture: &str,
    defines: &[(&str, String)],
) -> Result<Vec<u8>, CudaError> {
    let (major, minor) = compiler_version()?;
    let mut hash = Sha256::new();
    let mut add = |text: &str| {
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text.as_bytes());
    };
    add(&format!("NVRTC {major}.{minor}"));
    options(architecture, defines, major).iter().for_each(|option| add(option));
    for source in std::iter::once(program).chain(headers) {
        add(&source.name);
        add(&source.text);
    }
    // A file that a user named has a path.
    let name = program.name.rsplit('/').next().unwrap_or_default().trim_end_matches(".cu");
    let mut key = format!("{name}-{architecture}-");
    for byte in &hash.finalize()[..16] {
        let _ = write!(key, "{byte:02x}");
    }
    let file = cache_directory().map(|directory| directory.join(format!("{key}.cubin")));
    if let Some(cubin) = file.as_ref().and_then(|file| std::fs::read(file).ok())
        && cubin.starts_with(b"\x7fELF")
    {
        return Ok(cubin);
    }
    let Compiled { cubin, log } = compile(program, headers, architecture, defines)?;
    tracing::debug!(program = &*program.name, architecture, "compiled\n{log}");
    if let Some(file) = file {
        keep(&file, &cubin);
    }
    Ok(cubin)
}

/// Compiles `program`, which may include `headers`, without a GPU. Returns the machine code, which is also in the user's cache, where
/// [`Program::compile`](super::Program::compile) finds it on a GPU of this architecture.
///
/// # Errors
/// As for [`compile`].
pub fn precompile(
    program: &Source,
    headers: &[Source],
    architecture: &str,
) -> Result<Vec<u8>, CudaError> {
    let headers: Vec<Source> = included(program, headers).into_iter().cloned().collect();
    compile_cached(program, &headers, architecture, &[])
}

/// Returns the cache directory of compiled kernels; `None` for a user without a home directory.
fn cache_directory() -> Option<PathBuf> {
    let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|p| p.is_absolute());
    let base = base.or_else(|| std::env::home_dir().map(|home| home.join(".cache")))?;
    Some(base.join("fxgraph").join("kernels"))
}

/// Writes a temporary file and renames it, so that other processes never read an incomplete file. An error is
/// logged only: without a cache, starts are slower.
fn keep(file: &std::path::Path, cubin: &[u8]) {
    let beside = file.with_extension(format!("{}.new", std::process::id()));
    let kept = file.parent().map_or(Ok(()), std::fs::create_dir_all);
    let kept = kept.and_then(|()| std::fs::write(&beside, cubin));
    if let Err(error) = kept.and_then(|()| std::fs::rename(&beside, file)) {
        tracing::debug!("cannot write compiled kernels to {}: {error}", file.display());
        let _ = std::fs::remove_file(&beside);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn embedded_source_is_named_after_its_file() {
        let names = ["kernels/sub/pfb.cu", "pfb.cu", "/pfb.cu"];
        for path in names {
            assert_eq!(Source::embedded(path, "").name, "pfb.cu");
        }
    }

    #[test]
    fn included_headers_are_followed_through_others() {
        let headers = [
            Source::embedded("types.cuh", "typedef int i32;"),
            Source::embedded("other.cuh", "#include \"types.cuh\""),
            Source::embedded(
                "packed.cuh",
                "#pragma once\n  #include \"types.cuh\"\n#include \"packed.cuh\"",
            ),
        ];
        let program = Source::embedded("pfb.cu", "// pfb\n#include \"packed.cuh\"\nint other;");
        let names = |program: &Source| -> Vec<String> {
            included(program, &headers).into_iter().map(|header| header.name.to_string()).collect()
        };
        assert_eq!(names(&program), ["packed.cuh", "types.cuh"]);
        for line in [
            "#include \"types.cuh\"  // integers",
            "#include <types.cuh>",
            " # include\t\"types.cuh\"/* integers */",
            "/* integers */ #/**/include/**/\"types.cuh\"",
            "/*\n*/ %:include_next <types.cuh>",
        ] {
            assert_eq!(names(&Source::embedded("pfb.cu", line)), ["types.cuh"], "{line}");
        }
        assert!(names(&Source::embedded("copy.cu", "// no #include")).is_empty());
    }

    #[test]
    fn includes_without_a_name_are_found_with_their_lines() {
        let found = |text| includes(text).collect::<Vec<_>>();
        assert_eq!(found("int a;\n#include \"/etc/hosts\""), [(2, "/etc/hosts")]);
        for text in [
            "#include NAME",
            "#inc\\\nlude \"a.h\"",
            "# \\\ninclude <a.h>",
            "#/*\n*/include \"a.h\"",
        ] {
            assert_eq!(found(text), [(1, "")], "{text}");
        }
        for text in [
            "#define A \\\n 1",
            "a % include",
            "#if 1\n#endif",
            "\"#include <a.h>\"",
            "// #include <a.h>",
        ] {
            assert_eq!(found(text), [], "{text}");
        }
    }
}
