//! Registry of the recorders of a run.

use crate::event::Event;
use crate::lock::lock;
use std::any::Any;
use std::sync::{Arc, Mutex, Weak};

/// Records frames of a stream in files; `fxgraph::recording::Recorder` implements it.
pub trait AnyRecorder: Any + Send + Sync {
    /// Name: that of its block, or a number.
    fn name(&self) -> &str;
    /// Handles an event of the run, which may trigger a recording.
    fn see(&self, event: &Event);
}

type Say = Arc<dyn Fn(&str, &str) + Send + Sync>;

/// Recorders of a run: those of its blocks, and those that clients created. Cheap to clone.
#[derive(Clone, Default)]
pub struct Recorders(Arc<Reports>);

/// Recorders, and the function that gets their reports.
#[derive(Default)]
pub struct Reports {
    all: Mutex<Vec<Arc<dyn AnyRecorder>>>,
    say: Mutex<Option<Say>>,
}

impl Reports {
    /// Reports an action of a recorder of `block`.
    pub fn say(&self, block: &str, text: &str) {
        let say = lock(&self.say).clone();
        if let Some(say) = say {
            say(block, text);
        }
    }
}

impl Recorders {
    /// Target of the reports of a recorder, valid during the run.
    #[must_use]
    pub fn reports(&self) -> Weak<Reports> {
        Arc::downgrade(&self.0)
    }

    /// Adds a recorder. It replaces a recorder of the same name, whose block was created again.
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

    /// The recorder `name`, if it is of type `R`.
    #[must_use]
    pub fn get<R: AnyRecorder>(&self, name: &str) -> Option<Arc<R>> {
        self.list::<R>().into_iter().find(|recorder| recorder.name() == name)
    }

    /// Removes the recorder `name`.
    pub fn remove(&self, name: &str) {
        lock(&self.0.all).retain(|recorder| recorder.name() != name);
    }

    /// Sets the function that gets the block and the text of each report.
    pub fn tell(&self, say: impl Fn(&str, &str) + Send + Sync + 'static) {
        *lock(&self.0.say) = Some(Arc::new(say));
    }

    /// Function that passes events to all recorders, while this registry exists.
    pub fn watcher(&self) -> impl Fn(&Event) + Send + Sync + 'static {
        let reports = Arc::downgrade(&self.0);
        move |event| {
            let recorders = reports.upgrade().map(|reports| lock(&reports.all).clone());
            recorders.into_iter().flatten().for_each(|recorder| recorder.see(event));
        }
    }
}
