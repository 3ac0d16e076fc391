//! One value made smaller: of the units that it was cut into the best, put together again in their order and shape.
//!
//! What is left out is marked where it was with a short count (`⋯14`); nothing is rewritten.

use std::ops::Range;

use serde_json::{Map, Value};

use super::choose::{Choice, choose, only};
use super::unit::{Cut, Form, Member, Node, Unit};
use crate::survive::Anchor;
use crate::tokens::count;

/// How often the budget is tried to be filled.
const TRIES: usize = 4;

/// A value in pieces, from which it is put together as large as wanted.
#[derive(Debug)]
pub(super) struct Pieces {
    root: Node,
    cut: Cut,
    worths: Vec<f32>,
    /// What the user's last request takes alone, with all that it stands in; 0 if there is none.
    request_tokens: usize,
}

impl Pieces {
    /// `lines` says that texts are cut inside; what `goal` names is worth more.
    pub(super) fn cut(value: &Value, lines: bool, goal: Option<&str>) -> Self {
        let (cut, root) = Cut::read(value, lines);
        let worths = cut.entities.worths(goal);
        let mut pieces = Self { root, cut, worths, request_tokens: 0 };
        pieces.request_tokens = pieces.tokens_of(|unit| unit.is_request);
        pieces
    }

    pub(super) fn request_tokens(&self) -> usize {
        self.request_tokens
    }

    /// What the newest error takes alone, with all that it stands in; 0 if there is none.
    pub(super) fn error_tokens(&self) -> usize {
        self.tokens_of(|unit| unit.anchor == Some(Anchor::Error))
    }

    fn tokens_of(&self, is_wanted: impl Fn(&Unit) -> bool) -> usize {
        let chosen = only(&self.cut, is_wanted).and_then(|choice| render(&self.root, &self.cut.units, &choice));
        chosen.map_or(0, |chosen| count(&chosen.to_string()))
    }

    /// The most of it that fits into `tokens_max`, and how many that takes; `None` if nothing does.
    pub(super) fn within(&self, tokens_max: usize) -> Option<(Value, usize)> {
        let request = Some(self.request_tokens).filter(|tokens| (1..=tokens_max).contains(tokens));
        // What units cost in their places is an estimate: it is corrected by what they cost together.
        let (mut best, mut good, mut too_much) = (None, 0, None);
        let (mut estimate, mut tries) = (tokens_max, 0);
        while best.is_none() || tries < TRIES {
            tries += 1;
            let choice = choose(&self.cut, &self.worths, estimate, request);
            let Some(shortened) = render(&self.root, &self.cut.units, &choice) else { break };
            let tokens = count(&shortened.to_string());
            let fits = tokens <= tokens_max;
            if fits {
                (best, good) = (Some((shortened, tokens)), estimate);
            } else {
                too_much = Some(estimate);
            }
            if fits && (tokens_max - tokens) * 50 < tokens_max {
                break;
            }
            let wanted = (estimate as f64 * tokens_max as f64 / tokens as f64) as usize;
            estimate = match (&best, too_much) {
                (None, _) => wanted.min(estimate.checked_sub(1 + estimate / 64)?),
                (Some(_), Some(too_much)) => good.midpoint(too_much),
                (Some(_), None) => wanted,
            };
            if best.is_some() && estimate <= good {
                break;
            }
        }
        best
    }
}

fn mark(left_out: usize) -> String {
    if left_out == 0 { "⋯".to_owned() } else { format!("⋯{left_out}") }
}

fn render(node: &Node, units: &[Unit], choice: &Choice) -> Option<Value> {
    match node {
        Node::Whole(at, value) => choice.has(*at).then(|| value.clone()),
        Node::Text(range, before) => render_text(range.clone(), *before, units, choice),
        Node::List(nodes) => {
            let (mut items, mut gap) = (Vec::new(), 0);
            for node in nodes {
                match render(node, units, choice) {
                    None => gap += 1,
                    Some(item) => {
                        items.extend((gap > 0).then(|| Value::from(mark(gap))));
                        items.push(item);
                        gap = 0;
                    }
                }
            }
            if items.is_empty() {
                return None;
            }
            items.extend((gap > 0).then(|| Value::from(mark(gap))));
            Some(items.into())
        }
        Node::Object(members) => {
            let (mut map, mut gap, mut is_empty) = (Map::new(), 0, true);
            for (key, member) in members {
                match member {
                    Member::Label(value) => drop(map.insert(key.clone(), value.clone())),
                    Member::Node(node) => match render(node, units, choice) {
                        Some(value) => {
                            is_empty = false;
                            map.insert(key.clone(), value);
                        }
                        None => gap += 1,
                    },
                }
            }
            if gap > 0 {
                // A member may have that name.
                let mut key = "⋯".to_owned();
                while members.iter().any(|(name, _)| *name == key) {
                    key.push('⋯');
                }
                map.insert(key, gap.into());
            }
            (!is_empty).then(|| map.into())
        }
    }
}

/// A mark for what is left out of a text says how many lines are; inside of a line, none.
fn render_text(range: Range<usize>, before: usize, units: &[Unit], choice: &Choice) -> Option<Value> {
    let (mut lines, mut gap): (Vec<String>, Option<usize>) = (Vec::new(), (before > 0).then_some(before));
    // Whether the unit before is shown, and whether something of the line at hand is.
    let (mut is_next, mut is_begun) = (false, false);
    for unit in range {
        let is_joined = units[unit].form == Form::Joined;
        is_begun &= is_joined;
        if !choice.has(unit) {
            gap = Some(gap.unwrap_or(0) + usize::from(!is_joined));
            is_next = false;
            continue;
        }
        // A line that is shown from its middle on is not left out.
        let is_late = is_joined && !is_begun;
        lines.extend(gap.take().map(|left_out| mark(left_out.saturating_sub(usize::from(is_late)))));
        match lines.last_mut().filter(|_| is_next && is_joined) {
            Some(line) => line.push_str(&units[unit].text),
            None => lines.push(units[unit].text.clone()),
        }
        (is_next, is_begun) = (true, true);
    }
    if lines.is_empty() {
        return None;
    }
    lines.extend(gap.map(mark));
    Some(lines.join("\n").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_is_said_to_be_left_out_of_which_something_is_shown() {
        let sentence = |n: usize| format!("The module {n} reads file_{n}.rs and writes what it found to table_{n}. ");
        let text: String = (0..200).map(sentence).collect();
        for tokens in [60, 100, 300] {
            let shortened = Pieces::cut(&Value::from(text.trim()), true, None).within(tokens).unwrap().0;
            let lines: Vec<&str> = shortened.as_str().unwrap().lines().collect();
            assert!(lines.contains(&"⋯"), "{shortened}");
            lines.iter().filter(|line| **line != "⋯").for_each(|line| assert!(text.contains(line), "{line:?}"));
        }
    }

    #[test]
    fn lines_that_are_left_out_are_counted_where_they_stood() {
        let lines: Vec<String> = (0..40).map(|n| format!("step {n} of the build has compiled crate_{n}")).collect();
        let shortened = Pieces::cut(&Value::from(lines.join("\n")), true, None).within(80).unwrap().0;
        let mut at = 0;
        for line in shortened.as_str().unwrap().lines() {
            match line.strip_prefix('⋯') {
                Some(count) => at += count.parse::<usize>().unwrap(),
                None => {
                    assert_eq!(line, lines[at]);
                    at += 1;
                }
            }
        }
        assert_eq!(at, lines.len());
    }
}
