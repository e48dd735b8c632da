//! Folding of replicas: `f[0].pfb`, `f[1].pfb`, ... are shown as one, `f[0..63].pfb`, as the page does.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};

/// Number of entries up to which nothing is folded: all fit on a screen. The page has the same limit.
const FEW: usize = 8;

/// Entries that are shown as one: replicas, or a single entry.
pub struct Group<'a, T> {
    /// Name of the entry, or `f[0..63].pfb`.
    pub name: String,
    /// Its entries, at least one.
    pub members: Vec<&'a T>,
}

/// Name without its indices, and the indices: `f[*].pfb` and 3 for `f[3].pfb`.
fn split(name: &str) -> (String, Vec<u32>) {
    let (mut pattern, mut indices, mut rest) = (String::new(), Vec::new(), name);
    while let Some((before, after)) = rest.split_once('[') {
        pattern.push_str(before);
        let index =
            after.split_once(']').and_then(|(index, rest)| Some((index.parse().ok()?, rest)));
        if let Some((index, _)) = index {
            pattern.push_str("[*]");
            indices.push(index);
        } else {
            pattern.push('[');
        }
        rest = index.map_or(after, |(_, rest)| rest);
    }
    (pattern + rest, indices)
}

/// Name of replicas with this pattern and these indices: a range where all of its numbers are there.
fn joined(pattern: &str, indices: &[Vec<u32>]) -> String {
    let places = pattern.matches("[*]").count();
    let range = |place: usize| {
        let mut numbers: Vec<u32> = indices.iter().map(|one| one[place]).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let (first, last) = (numbers[0], numbers[numbers.len() - 1]);
        (numbers.len() - 1 == (last - first) as usize).then_some((first, last))
    };
    let ranges: Option<Vec<(u32, u32)>> = (0..places).map(range).collect();
    let all = |ranges: &Vec<(u32, u32)>| {
        let counts = ranges.iter().map(|(first, last)| (last - first) as usize + 1);
        counts.fold(1, usize::saturating_mul) == indices.len()
    };
    let Some(ranges) = ranges.filter(all) else { return pattern.to_owned() };
    let mut parts = pattern.split("[*]");
    let mut name = parts.next().unwrap_or_default().to_owned();
    for ((first, last), part) in ranges.into_iter().zip(parts) {
        let range = if first == last { first.to_string() } else { format!("{first}..{last}") };
        name += &format!("[{range}]{part}");
    }
    name
}

/// Whether this many entries are folded, unless the user wants all of them.
pub fn is_folded(entries: usize, all: bool) -> bool {
    !all && entries > FEW
}

/// Folds three and more `entries` whose names differ in their indices only, and for which `of` returns the same text
/// beside the name: kind and device. Groups are in the order of their first entries.
pub fn groups<'a, T>(
    entries: impl IntoIterator<Item = &'a T>,
    is_folded: bool,
    of: impl Fn(&T) -> (&str, String),
) -> Vec<Group<'a, T>> {
    /// Fewer replicas take no more rows than their range and the worst one.
    const FEWEST: usize = 3;
    let read = |entry: &'a T| {
        let (name, alike) = of(entry);
        let (pattern, indices) = split(name);
        (entry, name.to_owned(), (pattern, alike), indices)
    };
    let entries: Vec<_> = entries.into_iter().map(read).collect();
    let mut counts: HashMap<(String, String), usize> = HashMap::new();
    entries.iter().for_each(|(_, _, key, _)| *counts.entry(key.clone()).or_default() += 1);
    let mut groups: Vec<(Vec<Vec<u32>>, Group<'a, T>)> = Vec::new();
    let mut known = HashMap::new();
    for (entry, name, key, indices) in entries {
        if !is_folded || indices.is_empty() || counts[&key] < FEWEST {
            groups.push((Vec::new(), Group { name, members: vec![entry] }));
            continue;
        }
        let pattern = key.0.clone();
        let place = *known.entry(key).or_insert(groups.len());
        if place == groups.len() {
            groups.push((Vec::new(), Group { name: pattern, members: Vec::new() }));
        }
        let (all, group) = &mut groups[place];
        all.push(indices);
        group.members.push(entry);
    }
    let finish = |(indices, mut group): (Vec<Vec<u32>>, Group<'a, T>)| {
        if !indices.is_empty() {
            group.name = joined(&group.name, &indices);
        }
        group
    };
    groups.into_iter().map(finish).collect()
}

/// Names as one text: `f[0..63]`, or several separated by commas. Repeated names count once.
pub fn together(names: &[&str]) -> String {
    let mut known = HashSet::new();
    let once = names.iter().filter(|name| known.insert(**name));
    let names = groups(once, true, |name| (name, String::new())).into_iter();
    names.map(|group| group.name).collect::<Vec<_>>().join(", ")
}

/// A row of a table: the range of the values of replicas, or the values of one entry.
pub struct Line<'a, T> {
    /// Name of the group, or of the entry after [`MARK`] if it is the worst of the group above.
    pub name: String,
    /// The entry, or the worst one of the group.
    pub entry: &'a T,
    #[cfg_attr(not(feature = "tui"), allow(dead_code))]
    pub members: Vec<&'a T>,
    pub cells: Vec<String>,
    pub is_worst: bool,
}

/// Mark before the name of the worst replica.
pub const MARK: &str = "\u{2514} ";

impl<'a, T> Group<'a, T> {
    /// Rows of the group: minimum to maximum of each column, and below it the worst entry unless all are the same.
    /// `cells` returns value and text of each column, `worse` the order of two entries, the worse one last.
    pub fn lines(
        &self,
        name: impl Fn(&T) -> &str,
        cells: impl Fn(&T) -> Vec<(f64, String)>,
        worse: impl Fn(&T, &T) -> Ordering,
    ) -> Vec<Line<'a, T>> {
        let members = &self.members;
        let table: Vec<Vec<(f64, String)>> = members.iter().map(|one| cells(one)).collect();
        // The first of equal ones.
        let worst =
            members.iter().enumerate().rev().max_by(|(_, one), (_, other)| worse(one, other));
        let Some((at, worst)) = worst.map(|(at, worst)| (at, *worst)) else { return Vec::new() };
        let column = |column: usize| {
            let by_value = |one: &&(f64, String), other: &&(f64, String)| one.0.total_cmp(&other.0);
            let values = || table.iter().map(|row| &row[column]);
            let (smallest, largest) = (values().min_by(by_value), values().max_by(by_value));
            let text = |cell: Option<&(f64, String)>| {
                cell.map_or("", |(_, text)| text.as_str()).to_owned()
            };
            range(&text(smallest), &text(largest))
        };
        let folded: Vec<String> = (0..table[at].len()).map(column).collect();
        let own: Vec<String> = table[at].iter().map(|(_, text)| text.clone()).collect();
        let of_worst = (own != folded).then(|| Line {
            name: format!("{MARK}{}", name(worst)),
            entry: worst,
            members: vec![worst],
            cells: own,
            is_worst: true,
        });
        let (name, members) = (self.name.clone(), members.clone());
        let whole = Line { name, entry: worst, members, cells: folded, is_worst: false };
        std::iter::once(whole).chain(of_worst).collect()
    }
}

/// Texts of the smallest and the largest value as one text: `2.1..9.9 %`, or `2.1 %` if they are the same.
pub fn range(smallest: &str, largest: &str) -> String {
    if smallest == largest {
        return smallest.to_owned();
    }
    let unit = |text: &str| text.split_once(' ').map(|(_, unit)| format!(" {unit}"));
    let suffix = unit(largest).filter(|of| unit(smallest).as_ref() == Some(of));
    let short = smallest.strip_suffix(suffix.as_deref().unwrap_or_default());
    format!("{}..{largest}", short.unwrap_or(smallest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folded(names: &[&str]) -> Vec<(String, usize)> {
        let groups = groups(names, true, |name| (name, String::new()));
        groups.into_iter().map(|group| (group.name, group.members.len())).collect()
    }

    #[test]
    fn replicas_are_named_by_the_range_of_their_indices() {
        let names = ["d[0]", "d[1]", "d[2]", "a[0].f[3].x", "a[1].f[3].x", "a[2].f[3].x", "array"];
        let expected = [("d[0..2]", 3), ("a[0..2].f[3].x", 3), ("array", 1)];
        assert_eq!(folded(&names), expected.map(|(name, count)| (name.to_owned(), count)));
        // Where numbers are missing, no range says which.
        assert_eq!(folded(&["d[0]", "d[2]", "d[3]"]), [("d[*]".to_owned(), 3)]);
        let diagonal = ["d[0].f[1]", "d[1].f[0]", "d[1].f[1]"];
        assert_eq!(folded(&diagonal), [("d[*].f[*]".to_owned(), 3)]);
        assert_eq!(folded(&["d[0]", "d[1]"]).len(), 2);
        assert_eq!(folded(&["x[y", "d[a]", "d[7]"]).len(), 3);
        assert_eq!(folded(&["d[7]"]), [("d[7]".to_owned(), 1)]);
    }

    #[test]
    fn replicas_of_other_kinds_are_not_folded() {
        let names = ["d[0]", "d[1]", "d[2]", "d[3]"];
        let kind = |name: &str| usize::from(name == "d[1]").to_string();
        let folded = groups(&names, true, |name| (name, kind(name)));
        let names: Vec<String> = folded.into_iter().map(|group| group.name).collect();
        assert_eq!(names, ["d[*]", "d[1]"]);
    }

    #[test]
    fn line_of_replicas_has_their_range_and_the_worst_below() {
        let busy = [("d[0]", 2.0), ("d[1]", 9.5), ("d[2]", 3.0)];
        let lines = |busy: &[(&'static str, f64)]| {
            let groups = groups(busy, true, |(name, _)| (name, String::new()));
            let cells =
                |(_, busy): &(&str, f64)| vec![(*busy, format!("{busy} %")), (0.0, "0".to_owned())];
            let lines = groups.iter().flat_map(|group| {
                group.lines(|(name, _)| name, cells, |one, other| one.1.total_cmp(&other.1))
            });
            lines.map(|line| format!("{} {}", line.name, line.cells.join(" "))).collect::<Vec<_>>()
        };
        assert_eq!(lines(&busy), ["d[0..2] 2..9.5 % 0", "\u{2514} d[1] 9.5 % 0"]);
        assert_eq!(lines(&busy.map(|(name, _)| (name, 1.0))), ["d[0..2] 1 % 0"]);
    }

    #[test]
    fn range_has_its_unit_once() {
        assert_eq!(range("2.1 %", "9.9 %"), "2.1..9.9 %");
        assert_eq!(range("0/4", "0/4"), "0/4");
        assert_eq!(range("980", "1.20 k"), "980..1.20 k");
    }
}
