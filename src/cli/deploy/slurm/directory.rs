//! Directory of an array: the deployment, and the files in `run` by which commands and supervisors know of each other.
//!
//! | file in `run` | content |
//! |---|---|
//! | `lock`, `update.lock` | locked by the supervisors of the parts, and during an update |
//! | `jobs` | beginning of the names of the jobs: an array that was updated keeps them |
//! | `peer` | the other directory during an update |
//! | `stop` | the array is being stopped |
//! | `PART.host`, `PART.address`, `PART.step` | where the part runs: host, server, name of the step |
//! | `PART.again` | the part is restarted on request |
//! | `PART.over` | the part has ended, and is not started again |
//! | `PART.away` | the directory that has the part |
//! | `PART.beside`, `PART.begun` | host, port and flowgraph of a version to start beside the running one, and when its supervisor starts it |
//! | `PART.ended` | exit code of that version |
//! | `PART.state_from` | live values of the last process, in another directory |

use super::super::manifest::{Array, Manifest, Part};
use super::super::{File as Text, write_file};
use crate::client::{Client, Connection, with_help};
use crate::failure::Failure;
use fxgraph::files::read_regular;
use fxgraph_api::flowgraph::Health;
use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use ureq::http::Method;

/// Files that say where a part runs.
pub const PLACE: [&str; 3] = ["host", "address", "step"];
/// Time for the server of a part to answer.
const ANSWER: Duration = Duration::from_secs(10);
/// Largest file in `run`.
const MAX_BYTES: u64 = 1 << 16;

pub struct Directory {
    pub path: PathBuf,
    pub manifest: Manifest,
    pub array: Array,
}

/// The file `key` of `part`.
pub fn of(part: &Part, key: &str) -> String {
    format!("{}.{key}", part.file_name)
}

impl Directory {
    /// Opens a directory that `fxgraph deploy --engine slurm` has written.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let manifest = Manifest::read(path)?;
        let Some(array) = manifest.array.clone() else {
            let what = format!("`{}` must be a deployment for Slurm", path.display());
            let help = "give a directory that `fxgraph deploy FLOWGRAPH --engine slurm -o DIR` has written";
            return Err(Failure::failed(with_help(&what, [help])));
        };
        let cannot = |error: io::Error| {
            Failure::because(&format!("cannot use the directory `{}`", path.display()), &error)
        };
        let path = path.canonicalize().map_err(cannot)?;
        for name in ["run", "log", "state"] {
            fs::create_dir_all(path.join(name)).map_err(cannot)?;
        }
        Ok(Self { path, manifest, array })
    }

    pub fn parts(&self) -> &[Part] {
        &self.manifest.parts
    }

    /// The part that is named `name`.
    pub fn part(&self, name: &str) -> Result<&Part, Failure> {
        let part = self.parts().iter().find(|part| part.name == name);
        part.ok_or_else(|| Failure::failed(format!("there is no part `{name}`")))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.path.join("run").join(name)
    }

    pub fn has(&self, name: &str) -> bool {
        self.file(name).exists()
    }

    pub fn get(&self, name: &str) -> Option<String> {
        let text = String::from_utf8(read_regular(&self.file(name), MAX_BYTES).ok()?).ok()?;
        Some(text.trim_end().to_owned())
    }

    pub fn put(&self, name: &str, text: &str) -> Result<(), Failure> {
        let path = self.file(name);
        write_file(&path, &Text::new(&path, format!("{text}\n")))
            .map_err(|error| cannot("write", &path, &error))
    }

    pub fn remove(&self, name: &str) -> Result<(), Failure> {
        remove(&self.file(name))
    }

    /// Removes the files `keys` of all parts.
    pub fn remove_all(&self, keys: &[&str]) -> Result<(), Failure> {
        let mut files = self.parts().iter().flat_map(|part| keys.iter().map(|key| of(part, key)));
        files.try_for_each(|name| self.remove(&name))
    }

    /// Renames the file `from` to `to`; returns whether it was there. Of several processes that do so, one is told so.
    pub fn claim(&self, from: &str, to: &str) -> bool {
        fs::rename(self.file(from), self.file(to)).is_ok()
    }

    /// Takes the lock `name`; `None` while another process has it.
    pub fn lock(&self, name: &str) -> Result<Option<File>, Failure> {
        let path = self.file(name);
        let file = File::options().create(true).append(true).open(&path);
        let file = file.map_err(|error| cannot("open", &path, &error))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(cannot("lock", &path, &error)),
        }
    }

    /// Whether `lock` is still the file `lock`, which an update removes when it takes the parts.
    pub fn is_held_by(&self, lock: &File) -> bool {
        let same = |a: fs::Metadata, b: fs::Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
        let now = fs::metadata(self.file("lock"));
        now.is_ok_and(|now| lock.metadata().is_ok_and(|held| same(now, held)))
    }

    /// The directory that an update gave all parts to; `None` if this one has some.
    pub fn given_to(&self) -> Option<String> {
        let away = self.parts().iter().map(|part| self.get(&of(part, "away")));
        away.collect::<Option<Vec<String>>>()?.pop()
    }

    /// File with the live values of `part`.
    pub fn values(&self, part: &Part) -> PathBuf {
        self.path.join("state").join(format!("{}.json", part.file_name))
    }

    /// Removes the live values of `part`.
    pub fn forget_values(&self, part: &Part) -> Result<(), Failure> {
        remove(&self.values(part))?;
        self.remove(&of(part, "state_from"))
    }

    /// Takes the live values of `part` from where its last process has kept them.
    pub fn fetch_values(&self, part: &Part) -> Result<(), Failure> {
        let Some(from) = self.get(&of(part, "state_from")) else { return Ok(()) };
        let (from, own) = (Path::new(&from), self.values(part));
        // After an update there and one back, they are here.
        if from != own {
            match fs::copy(from, &own) {
                Ok(_) => remove(from)?,
                Err(error) if error.kind() == ErrorKind::NotFound => remove(&own)?,
                Err(error) => return Err(cannot("copy", from, &error)),
            }
        }
        self.remove(&of(part, "state_from"))
    }

    /// Copies from `other` where `part` runs and where its live values are.
    pub fn adopt(&self, part: &Part, other: &Self) -> Result<(), Failure> {
        for name in PLACE.iter().chain(&["state_from"]).map(|key| of(part, key)) {
            if let Some(text) = other.get(&name) {
                self.put(&name, &text)?;
            }
        }
        Ok(())
    }

    fn client(&self, address: &str) -> Result<Client, Failure> {
        let token = self.path.join(&self.manifest.token_file);
        Connection::with_token(address, token).client_within(ANSWER)
    }

    /// State of the flowgraph at `address`; `None` without an answer.
    pub fn state_at(&self, address: &str) -> Option<String> {
        let health = self.client(address).and_then(|it| it.get::<Health>("/api/v1/health"));
        health.ok().map(|health| health.state)
    }

    /// State of `part`; `None` without an address or an answer.
    pub fn state(&self, part: &Part) -> Option<String> {
        self.state_at(&self.get(&of(part, "address"))?)
    }

    /// Asks `part` to start. Without an answer the caller sees it in the state.
    pub fn request_start(&self, part: &Part) {
        if let Some(client) =
            self.get(&of(part, "address")).and_then(|address| self.client(&address).ok())
        {
            let _ = client.send::<Health>(Method::POST, "/api/v1/flowgraph/start", None);
        }
    }
}

/// Removes a file, if it is there.
pub fn remove(path: &Path) -> Result<(), Failure> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(cannot("remove", path, &error)),
        _ => Ok(()),
    }
}

/// Describes a failed operation on a file.
pub fn cannot(what: &str, path: &Path, error: &io::Error) -> Failure {
    Failure::because(&format!("cannot {what} `{}`", path.display()), error)
}

#[cfg(test)]
mod tests {
    use super::super::array::tests::part;
    use super::*;

    /// A deployment of the parts `a` and `b`.
    fn deployed() -> (tempfile::TempDir, Directory) {
        let directory = tempfile::tempdir().unwrap();
        let manifest = Manifest {
            flowgraph: "array".to_owned(),
            engine: "slurm".to_owned(),
            version: "1".to_owned(),
            parts: vec![part("a", 0), part("b", 1)],
            token_file: "token".into(),
            files: Vec::new(),
            array: Some(Array { program: "fxgraph".to_owned(), classes: Vec::new() }),
        };
        manifest.write(directory.path()).unwrap();
        let opened = Directory::open(directory.path()).unwrap();
        assert_eq!(opened.manifest, manifest);
        (directory, opened)
    }

    #[test]
    fn deployment_for_another_engine_is_rejected() {
        let (path, Directory { mut manifest, .. }) = deployed();
        manifest.array = None;
        manifest.write(path.path()).unwrap();
        let failure = Directory::open(path.path()).err().unwrap();
        assert!(failure.first_line().contains("must be a deployment for Slurm"));
    }

    #[test]
    fn live_values_of_a_part_come_from_where_its_last_process_kept_them() {
        let (_path, directory) = deployed();
        let part = &directory.parts()[0];
        let own = directory.values(part);
        let other = directory.path.join("other.json");
        let begin = |own_text: &str, other_text: Option<&str>, is_elsewhere: bool| {
            fs::write(&own, own_text).unwrap();
            other_text.iter().for_each(|text| fs::write(&other, text).unwrap());
            if is_elsewhere {
                directory.put("a.state_from", other.to_str().unwrap()).unwrap();
            }
            directory.fetch_values(part).unwrap();
            let still_elsewhere = directory.has("a.state_from") || other.exists();
            (fs::read_to_string(&own).ok(), still_elsewhere)
        };
        assert_eq!(begin("own", None, false), (Some("own".to_owned()), false));
        assert_eq!(begin("stale", Some("new"), true), (Some("new".to_owned()), false));
        assert_eq!(begin("stale", None, true), (None, false), "the last process had none");
        fs::write(&own, "own").unwrap();
        directory.put("a.state_from", own.to_str().unwrap()).unwrap();
        directory.fetch_values(part).unwrap();
        assert_eq!(fs::read_to_string(&own).unwrap(), "own", "an update there and one back");
        directory.forget_values(part).unwrap();
        assert!(!own.exists() && !directory.has("a.state_from"));
    }

    #[test]
    fn array_is_in_another_directory_when_all_parts_are() {
        let (_path, directory) = deployed();
        assert_eq!(directory.given_to(), None);
        directory.put("a.away", "/new").unwrap();
        assert_eq!(directory.given_to(), None, "b is here");
        directory.put("b.away", "/new").unwrap();
        assert_eq!(directory.given_to().as_deref(), Some("/new"));
        directory.remove_all(&["away"]).unwrap();
        assert_eq!(directory.given_to(), None);
    }

    #[test]
    fn lock_has_one_owner_until_the_file_is_another() {
        let (_path, directory) = deployed();
        let lock = directory.lock("lock").unwrap().unwrap();
        assert!(directory.lock("lock").unwrap().is_none() && directory.is_held_by(&lock));
        directory.remove("lock").unwrap();
        assert!(!directory.is_held_by(&lock));
        let next = directory.lock("lock").unwrap().unwrap();
        assert!(directory.is_held_by(&next) && !directory.is_held_by(&lock));
    }

    #[test]
    fn order_beside_a_part_is_claimed_once() {
        let (_path, directory) = deployed();
        directory.put("a.beside", "h0 1 parts/a.yaml").unwrap();
        assert!(directory.claim("a.beside", "a.begun"));
        assert!(!directory.claim("a.beside", "a.begun"));
        assert_eq!(directory.get("a.begun").as_deref(), Some("h0 1 parts/a.yaml"));
    }
}
