//! What can be said of a change when of the old version only a lockfile speaks.

use serde_json::Value;

use super::carried::Tasks;
use super::hints::Effects;
use super::words::Side;
use super::{Allowance, Class, Comparison, Findings, values};
use crate::lock::Parts;

pub(crate) fn compare_parts(old: &Parts, new: &Parts, allowance: &mut Allowance) -> Comparison {
    let mut findings = Findings::default();
    for note in Effects::named(&old.hints).flipped(Effects::named(&new.hints)) {
        findings.add(Class::HintFlipped, || note.to_owned());
    }
    if old.execution != new.execution {
        findings.add(Class::Execution, || "how it is carried out changed".to_owned());
    }
    if old.input != new.input {
        schema(old.takes.as_ref(), new.takes.as_ref(), Side::Input, allowance, &mut findings);
    }
    match (&old.output, &new.output) {
        (None, None) => {}
        (None, Some(_)) => findings.add(Class::Widened, || "gained an output schema".to_owned()),
        (Some(_), None) => findings.add(Class::Narrowed, || "lost its output schema".to_owned()),
        (Some(before), Some(after)) if before == after => {}
        (Some(_), Some(_)) => {
            schema(old.gives.as_ref(), new.gives.as_ref(), Side::Output, allowance, &mut findings);
        }
    }
    // An older lockfile says nothing of these.
    if old.rest.is_some() {
        let tasks = |parts: &Parts| Tasks::named(parts.tasks.as_deref());
        if let Some((class, note)) = tasks(old).became(tasks(new)) {
            findings.add(class, || note.to_owned());
        }
        if old.rest != new.rest {
            findings.add(Class::Other, || "something changed of which a lockfile has no more than a sign".to_owned());
        }
    }
    if old.text != new.text {
        findings.add(Class::Text, || "its title or descriptions changed".to_owned());
    }
    findings.conclude()
}

fn schema(old: Option<&Value>, new: Option<&Value>, side: Side, allowance: &mut Allowance, findings: &mut Findings) {
    if let (Some(old), Some(new)) = (old, new) {
        return values(old.clone(), new.clone(), side, allowance, findings);
    }
    let side = side.as_str();
    findings.add(Class::Other, || {
        format!(
            "its {side} schema changed; how is not known here, for it is too long for a lockfile: \
             `toolcrib diff` tells it where the store is that it was locked from"
        )
    });
}
