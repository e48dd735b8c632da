//! The recorders of a run.

use super::{Recorder, lock};
use crate::runtime::Event;
use std::sync::{Arc, Mutex, Weak};

type Say = Arc<dyn Fn(&str, &str) + Send + Sync>;

/// The recorders of a run, those of its blocks and those that were asked for; cheap to clone.
#[derive(Clone, Default)]
pub struct Recorders(Arc<Told>);

/// Who tells what of whom.
#[derive(Default)]
pub(super) struct Told {
    all: Mutex<Vec<Recorder>>,
    say: Mutex<Option<Say>>,
}

impl Told {
    /// Tells of what a recorder of `block` did.
    pub fn say(&self, block: &str, text: &str) {
        let say = lock(&self.say).clone();
        if let Some(say) = say {
            say(block, text);
        }
    }
}

impl Recorders {
    pub(super) fn told(&self) -> Weak<Told> {
        Arc::downgrade(&self.0)
    }

    /// One of the same name has its place taken: its block was built anew.
    pub(super) fn add(&self, recorder: Recorder) {
        let mut all = lock(&self.0.all);
        all.retain(|other| other.name() != recorder.name());
        all.push(recorder);
    }

    /// All of them.
    #[must_use]
    pub fn list(&self) -> Vec<Recorder> {
        lock(&self.0.all).clone()
    }

    /// The one called `name`.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Recorder> {
        lock(&self.0.all).iter().find(|recorder| recorder.name() == name).cloned()
    }

    /// Forgets the one called `name`.
    pub fn remove(&self, name: &str) {
        lock(&self.0.all).retain(|recorder| recorder.name() != name);
    }

    /// What they tell, with their names, goes to `say`.
    pub(crate) fn tell(&self, say: impl Fn(&str, &str) + Send + Sync + 'static) {
        *lock(&self.0.say) = Some(Arc::new(say));
    }

    /// What shows them events, for as long as there is any of these recorders.
    pub(crate) fn watcher(&self) -> impl Fn(&Event) + Send + Sync + 'static {
        let told = Arc::downgrade(&self.0);
        move |event| {
            let recorders = told.upgrade().map(|told| lock(&told.all).clone());
            recorders.into_iter().flatten().for_each(|recorder| recorder.see(event));
        }
    }
}
