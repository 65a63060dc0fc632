//! A script: its Lua code with parts of the prelude, its rules, and the encoding of a call.

use std::ops::{Deref, DerefMut};
use std::sync::{LazyLock, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use redis::ScriptInvocation;
use redis_link::ScriptCall;

use super::prelude::Prelude;
use crate::keys;
use model::ids::{
    AppName, AssignmentId, ClusterId, Incarnation, NodeName, PodId, PodName, RegistryHost, SchedulerId,
    ServiceName, SpecId, ValueName, VolumeName, WriteId,
};
use model::node::{Resource, Resources};
use model::pod::lifecycle::{Phase, PodEvent};

pub const PRELUDE: &str = include_str!("../lua/_prelude.lua");

static READ_PRELUDE: LazyLock<Prelude<'static>> = LazyLock::new(|| Prelude::new(PRELUDE));

/// The last argument, which passes all amounts of [`Resources`] in order.
pub(super) const RESOURCES: &str = "resources";

/// Public for tests and tools. Processes run a script through an operation of [`Store`](super::Store).
pub struct Script {
    /// It is also the name of its file and of its failpoint.
    pub name: &'static str,
    pub text: &'static str,
    pub(super) head: Group,
    pub(super) batches: &'static [ItemBatch],
    pub run_by: &'static [ProcessKind],
    pub at_maxmemory: AtMaxmemory,
    pub creates: &'static [Phase],
    /// They are its only changes of phases.
    pub moves: &'static [PodEvent],
    pub(super) compiled: OnceLock<redis::Script>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessKind {
    Api,
    Scheduler,
    Worker,
    Proxy,
}

/// Redis checks `maxmemory` only at the first write: a script that begins with a write that cannot grow
/// anything runs to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtMaxmemory {
    /// It keeps pods or nodes alive, moves stored data, or frees memory.
    Allowed,
    /// It may run if it adds nothing: then it calls `allow_at_maxmemory()`.
    Shrinking,
    /// It only adds data.
    Refused,
}

pub(super) struct Group {
    pub(super) keys: &'static [&'static str],
    pub(super) args: &'static [&'static str],
}

impl Group {
    pub(super) fn arg_count(&self) -> usize {
        self.args.iter().map(|name| if *name == RESOURCES { Resource::ALL.len() } else { 1 }).sum()
    }
}

/// The head argument `<name>_count` is the number of items; for the last batch it follows from the arguments.
pub(super) struct ItemBatch {
    pub(super) name: &'static str,
    pub(super) item: Group,
}

impl Script {
    pub fn source(&self) -> String {
        self.source_of(&READ_PRELUDE, self.text)
    }

    pub fn source_of(&self, prelude: &Prelude<'_>, text: &str) -> String {
        let first = match self.at_maxmemory {
            AtMaxmemory::Allowed => "allow_at_maxmemory()",
            AtMaxmemory::Shrinking | AtMaxmemory::Refused => "",
        };
        let shared = prelude.needed(&[first, text]);
        format!("{shared}\n{first}\n{}\n{text}", self.readers())
    }

    pub fn arguments<'a>(&self, argv: &'a [Vec<u8>]) -> Arguments<'a> {
        let (head, mut rest) = argv.split_at(self.head.arg_count().min(argv.len()));
        let head = NamedArguments { names: self.head.args, values: head };
        let mut items = Vec::new();
        for batch in self.batches {
            let size = batch.item.arg_count();
            if size == 0 {
                continue;
            }
            let count =
                if self.is_last(batch) { rest.len() / size } else { head.number(&batch.count_name()) };
            let (batch_values, later) = rest.split_at((count * size).min(rest.len()));
            let names = batch.item.args;
            items.extend(batch_values.chunks_exact(size).map(|values| NamedArguments { names, values }));
            rest = later;
        }
        Arguments { head, items }
    }

    pub(super) fn is_last(&self, batch: &ItemBatch) -> bool {
        self.batches.last().is_some_and(|last| last.name == batch.name)
    }

    fn compiled(&self) -> &redis::Script {
        self.compiled.get_or_init(|| redis::Script::new(&self.source()))
    }
}

impl ItemBatch {
    pub(super) fn count_name(&self) -> String {
        format!("{}_count", self.name)
    }
}

impl std::fmt::Debug for Script {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Script").field(&self.name).finish()
    }
}

#[derive(Debug)]
pub struct Arguments<'a> {
    pub head: NamedArguments<'a>,
    pub items: Vec<NamedArguments<'a>>,
}

#[derive(Debug, Clone, Copy)]
pub struct NamedArguments<'a> {
    names: &'static [&'static str],
    values: &'a [Vec<u8>],
}

impl<'a> NamedArguments<'a> {
    pub fn get(&self, name: &str) -> Option<&'a [u8]> {
        let index = self.names.iter().position(|known| *known == name)?;
        self.values.get(index).map(Vec::as_slice)
    }

    fn number(&self, name: &str) -> usize {
        let text = self.get(name).and_then(|value| std::str::from_utf8(value).ok());
        text.and_then(|text| text.parse().ok()).unwrap_or_default()
    }
}

pub(crate) struct Call<'a>(ScriptCall<'a>);

impl Call<'_> {
    /// All items of one batch come before those of the next.
    pub(crate) fn add<I: BatchItem>(&mut self, item: I) {
        debug_assert_eq!(self.0.name(), I::SCRIPT, "an item of another script");
        item.add_to(&mut self.0);
    }
}

impl Call<'static> {
    pub(super) fn begin(script: &'static Script) -> Self {
        let mut invocation = script.compiled().prepare_invoke();
        invocation.key(keys::EVENTS).key(keys::META);
        Self(ScriptCall::new(script.name, invocation))
    }
}

impl<'a> Deref for Call<'a> {
    type Target = ScriptCall<'a>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for Call<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

/// Also returns the index of each value among them, from 1. Values repeat, so it searches from the end.
pub(crate) fn distinct<T: PartialEq>(values: impl Iterator<Item = T>) -> (Vec<T>, Vec<usize>) {
    let mut distinct: Vec<T> = Vec::new();
    let index = values.map(|value| match distinct.iter().rposition(|known| *known == value) {
        Some(known) => known + 1,
        None => {
            distinct.push(value);
            distinct.len()
        }
    });
    let index = index.collect();
    (distinct, index)
}

pub(crate) trait BatchItem {
    const SCRIPT: &'static str;

    fn add_to(self, call: &mut ScriptInvocation<'_>);
}

pub(crate) trait ScriptArg {
    fn add_to(self, call: &mut ScriptInvocation<'_>);
}

macro_rules! plain_args {
    ($($type:ty),*) => {$(
        impl ScriptArg for $type {
            fn add_to(self, call: &mut ScriptInvocation<'_>) {
                call.arg(self);
            }
        }
    )*};
}

plain_args!(&str, &String, String, &[u8], i64, u32, u64, usize);

macro_rules! text_args {
    ($($type:ty),*) => {$(
        impl ScriptArg for $type {
            fn add_to(self, call: &mut ScriptInvocation<'_>) {
                call.arg(self.as_str());
            }
        }
    )*};
}

text_args!(
    &AppName,
    &ClusterId,
    ClusterId,
    &AssignmentId,
    AssignmentId,
    &Incarnation,
    Incarnation,
    &NodeName,
    &PodId,
    &PodName,
    &SchedulerId,
    &RegistryHost,
    &ServiceName,
    &SpecId,
    &ValueName,
    &VolumeName,
    &WriteId
);

impl ScriptArg for &Bytes {
    fn add_to(self, call: &mut ScriptInvocation<'_>) {
        call.arg(&self[..]);
    }
}

/// `1` or `0`.
impl ScriptArg for bool {
    fn add_to(self, call: &mut ScriptInvocation<'_>) {
        call.arg(u8::from(self));
    }
}

/// Milliseconds.
impl ScriptArg for Duration {
    fn add_to(self, call: &mut ScriptInvocation<'_>) {
        call.arg(self.as_millis() as u64);
    }
}

/// `""` for `None`.
impl<T: ScriptArg> ScriptArg for Option<T> {
    fn add_to(self, call: &mut ScriptInvocation<'_>) {
        match self {
            Some(value) => value.add_to(call),
            None => "".add_to(call),
        }
    }
}

impl ScriptArg for &Resources {
    fn add_to(self, call: &mut ScriptInvocation<'_>) {
        for resource in Resource::ALL {
            call.arg(self.get(resource));
        }
    }
}
