use super::*;

#[test]
fn problems_of_two_kinds_are_both() {
    let (away, wrong) = (ConfigProblem::unreadable("the server is away"), ConfigProblem::invalid("row `a` is wrong"));
    let both = away.clone().and(wrong.clone());
    assert_eq!(both.why, "the server is away; row `a` is wrong");
    let kinds = |problem: &ConfigProblem| [problem.kind.is_unreadable(), problem.kind.is_invalid()];
    assert_eq!([&away, &wrong, &both].map(kinds), [[true, false], [false, true], [true, true]]);
    assert_eq!(away.clone().and(away).kind, ProblemKind::Unreadable);
    assert_eq!(both.and(wrong).kind, ProblemKind::Both);
}
