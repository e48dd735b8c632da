//! The recorders of a run, as its blocks and its watchers know them.

use crate::event::Event;
use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Keeps frames of a stream in files; `fxgraph::recording::Recorder` is one.
pub trait AnyRecorder: Any + Send + Sync {
    /// Its name: that of its block, or a number.
    fn name(&self) -> &str;
    /// Looks at an event of the run.
    fn see(&self, event: &Event);
}

type Say = Arc<dyn Fn(&str, &str) + Send + Sync>;

/// The recorders of a run, those of its blocks and those that were asked for; cheap to clone.
#[derive(Clone, Default)]
pub struct Recorders(Arc<Reports>);

/// The recorders, and the function that gets their reports.
#[derive(Default)]
pub struct Reports {
    all: Mutex<Vec<Arc<dyn AnyRecorder>>>,
    say: Mutex<Option<Say>>,
}

/// A panic elsewhere leaves plain data behind, which is still worth reading.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Reports {
    /// Reports what a recorder of `block` did.
    pub fn say(&self, block: &str, text: &str) {
        let say = lock(&self.say).clone();
        if let Some(say) = say {
            say(block, text);
        }
    }
}

impl Recorders {
    /// What a recorder reports to, for as long as the run lasts.
    #[must_use]
    pub fn reports(&self) -> Weak<Reports> {
        Arc::downgrade(&self.0)
    }

    /// Adds a recorder. One of the same name has its place taken: its block was built anew.
    pub fn add(&self, recorder: Arc<dyn AnyRecorder>) {
        let mut all = lock(&self.0.all);
        all.retain(|other| other.name() != recorder.name());
        all.push(recorder);
    }

    /// All recorders of type `R`.
    #[must_use]
    pub fn list<R: AnyRecorder>(&self) -> Vec<Arc<R>> {
        let all = lock(&self.0.all).clone();
        let of_type = |recorder: Arc<dyn AnyRecorder>| {
            let recorder: Arc<dyn Any + Send + Sync> = recorder;
            recorder.downcast().ok()
        };
        all.into_iter().filter_map(of_type).collect()
    }

    /// The recorder called `name`, if it is of type `R`.
    #[must_use]
    pub fn get<R: AnyRecorder>(&self, name: &str) -> Option<Arc<R>> {
        self.list::<R>().into_iter().find(|recorder| recorder.name() == name)
    }

    /// Forgets the one called `name`.
    pub fn remove(&self, name: &str) {
        lock(&self.0.all).retain(|recorder| recorder.name() != name);
    }

    /// Calls `say` with the block and the text of each report.
    pub fn tell(&self, say: impl Fn(&str, &str) + Send + Sync + 'static) {
        *lock(&self.0.say) = Some(Arc::new(say));
    }

    /// What shows them events, for as long as there is any of these recorders.
    pub fn watcher(&self) -> impl Fn(&Event) + Send + Sync + 'static {
        let reports = Arc::downgrade(&self.0);
        move |event| {
            let recorders = reports.upgrade().map(|reports| lock(&reports.all).clone());
            recorders.into_iter().flatten().for_each(|recorder| recorder.see(event));
        }
    }
}
