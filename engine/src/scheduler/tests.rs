//! Turns: who goes next, and what of the tree is kept.

use super::*;

/// A root with three tiers of weights 6, 3 and 1, each with one queue.
fn tiers(tree: &mut Tree) -> (NodeKey, [NodeKey; 3]) {
    let root = tree.add_root();
    let leaves = [6, 3, 1].map(|weight| {
        let tier = tree.add_branch(root, weight, 10 - weight as u64);
        tree.add_leaf(tier)
    });
    (root, leaves)
}

fn turn(tree: &mut Tree, root: NodeKey, leaves: &[NodeKey], cost: u32) -> Option<usize> {
    let path = tree.next(root)?;
    tree.leave(path.leaf());
    tree.charge(&path, cost);
    leaves.iter().position(|leaf| *leaf == path.leaf())
}

#[test]
fn hundred_turns_are_shared_60_30_10() {
    let mut tree = Tree::default();
    let (root, leaves) = tiers(&mut tree);
    for leaf in leaves {
        (0..2000).for_each(|_| tree.arrive(leaf));
    }
    let turns: Vec<usize> = (0..1500).map(|_| turn(&mut tree, root, &leaves, 1).unwrap()).collect();
    for window in turns.windows(100) {
        let count = |tier| window.iter().filter(|turn| **turn == tier).count();
        assert_eq!([count(0), count(1), count(2)], [60, 30, 10]);
    }
}

#[test]
fn returning_tier_has_hoarded_nothing() {
    let mut tree = Tree::default();
    let (root, leaves) = tiers(&mut tree);
    (0..1000).for_each(|_| tree.arrive(leaves[2]));
    (0..500).for_each(|_| assert_eq!(turn(&mut tree, root, &leaves, 1), Some(2)));
    (0..100).for_each(|_| tree.arrive(leaves[0]));
    let turns: Vec<usize> = (0..70).map(|_| turn(&mut tree, root, &leaves, 1).unwrap()).collect();
    let high = turns.iter().filter(|turn| **turn == 0).count();
    assert!((59..=61).contains(&high), "{high} of 70");
}

#[test]
fn costs_are_shared_by_weight() {
    let mut tree = Tree::default();
    let (root, leaves) = tiers(&mut tree);
    for leaf in leaves {
        (0..5000).for_each(|_| tree.arrive(leaf));
    }
    let mut spent = [0u32; 3];
    for _ in 0..3000 {
        let path = tree.next(root).unwrap();
        let tier = leaves.iter().position(|leaf| *leaf == path.leaf()).unwrap();
        let cost = [7, 2, 1][tier];
        spent[tier] += cost;
        tree.leave(path.leaf());
        tree.charge(&path, cost);
    }
    let sum: u32 = spent.iter().sum();
    let shares = spent.map(|spent| (spent * 1000).div_ceil(sum));
    assert!(shares[0].abs_diff(600) <= 5 && shares[1].abs_diff(300) <= 5, "{shares:?}");
}

#[test]
fn turn_that_was_not_used_comes_again() {
    // With and without another request of its tier, which keeps the tier's place meanwhile.
    for others in [0, 10] {
        let mut tree = Tree::default();
        let (root, leaves) = tiers(&mut tree);
        (0..100).for_each(|_| tree.arrive(leaves[0]));
        (0..=others).for_each(|_| tree.arrive(leaves[2]));
        let next = |tree: &mut Tree| turn(tree, root, &leaves, 1);
        assert_eq!([(); 3].map(|()| next(&mut tree)), [Some(0), Some(2), Some(0)]);
        tree.refund(leaves[2], 1);
        tree.arrive(leaves[2]);
        assert_eq!([(); 6].map(|()| next(&mut tree)), [2, 0, 0, 0, 0, 0].map(Some), "{others}");
    }
}

#[test]
fn parked_queue_resumes_its_place() {
    let mut tree = Tree::default();
    let root = tree.add_root();
    let tier = tree.add_branch(root, 1, 0);
    let leaves = [tree.add_leaf(tier), tree.add_leaf(tier)];
    for leaf in leaves {
        (0..3).for_each(|_| tree.arrive(leaf));
    }
    let path = tree.next(root).unwrap();
    assert_eq!(path.leaf(), leaves[0]);
    tree.park(leaves[0]);
    tree.put_back(&path);
    assert_eq!(turn(&mut tree, root, &leaves, 1), Some(1));
    tree.unpark(leaves[0]);
    assert_eq!(turn(&mut tree, root, &leaves, 1), Some(0));
    (0..3).for_each(|_| assert!(turn(&mut tree, root, &leaves, 1).is_some()));
    tree.park(leaves[0]);
    assert_eq!(turn(&mut tree, root, &leaves, 1), None);
}

#[test]
fn queue_found_empty_is_found_again() {
    let mut tree = Tree::default();
    let root = tree.add_root();
    let tier = tree.add_branch(root, 1, 0);
    let leaf = tree.add_leaf(tier);
    tree.arrive(leaf);
    tree.leave(leaf);
    assert!(tree.next(root).is_none(), "the tier is taken out, with the leaf still in its heap");
    tree.arrive(leaf);
    assert_eq!(tree.next(root).map(|path| path.leaf()), Some(leaf));
}

#[test]
fn discarded_node_is_freed_with_its_parent() {
    let mut tree = Tree::default();
    let root = tree.add_root();
    let tier = tree.add_branch(root, 1, 0);
    let leaf = tree.add_leaf(tier);
    tree.arrive(leaf);
    tree.leave(leaf);
    tree.discard(leaf);
    assert_eq!(tree.len(), 3);
    tree.discard(tier);
    assert!(tree.next(root).is_none());
    assert_eq!(tree.len(), 1);
    tree.discard(root);
    assert_eq!(tree.len(), 0);
}

/// From a root down to one leaf in each of two lanes of one tier.
fn two_lanes(tree: &mut Tree) -> (NodeKey, NodeKey, [NodeKey; 2], [NodeKey; 2]) {
    let root = tree.add_root();
    let tier = tree.add_branch(root, 1, 0);
    let lanes = [1, 1].map(|weight| tree.add_branch(tier, weight, 0));
    let leaves = lanes.map(|lane| tree.add_leaf(lane));
    (root, tier, lanes, leaves)
}

#[test]
fn first_of_equals_goes_first() {
    let mut tree = Tree::default();
    let root = tree.add_root();
    let tier = tree.add_branch(root, 1, 0);
    let leaves = [(); 3].map(|()| tree.add_leaf(tier));
    for leaf in [2, 0, 1] {
        (0..2).for_each(|_| tree.arrive(leaves[leaf]));
    }
    let turns: Vec<usize> = (0..6).map(|_| turn(&mut tree, root, &leaves, 1).unwrap()).collect();
    assert_eq!(turns, [2, 0, 1, 2, 0, 1]);
}

#[test]
fn parked_queue_returns_behind_its_equals() {
    let mut tree = Tree::default();
    let (root, _, _, leaves) = two_lanes(&mut tree);
    leaves.iter().for_each(|leaf| tree.arrive(*leaf));
    let path = tree.next(root).unwrap();
    assert_eq!(path.leaf(), leaves[0]);
    tree.park(leaves[0]);
    tree.put_back(&path);
    tree.unpark(leaves[0]);
    assert_eq!(turn(&mut tree, root, &leaves, 1), Some(1));
    assert_eq!(turn(&mut tree, root, &leaves, 1), Some(0));
}

#[test]
fn dead_end_yields_to_the_next_lane() {
    let mut tree = Tree::default();
    let (root, _, _, leaves) = two_lanes(&mut tree);
    leaves.iter().for_each(|leaf| tree.arrive(*leaf));
    // It stands in its lane's heap still, and its lane in the tier's.
    tree.park(leaves[0]);
    assert_eq!(turn(&mut tree, root, &leaves, 1), Some(1));
    assert_eq!(turn(&mut tree, root, &leaves, 1), None);
    tree.unpark(leaves[0]);
    assert_eq!(turn(&mut tree, root, &leaves, 1), Some(0));
}

#[test]
fn new_weight_holds_from_the_next_turn() {
    for (weight, high) in [(1, 50), (3, 75), (0, 50)] {
        let mut tree = Tree::default();
        let (root, _, lanes, leaves) = two_lanes(&mut tree);
        for leaf in leaves {
            (0..200).for_each(|_| tree.arrive(leaf));
        }
        tree.set_weight(lanes[0], weight);
        let turns = (0..100).filter(|_| turn(&mut tree, root, &leaves, 1) == Some(0)).count();
        assert!(turns.abs_diff(high) <= 1, "weight {weight}: {turns}");
    }
}

#[test]
fn parking_lasts_until_ended_or_replaced() {
    let mut tree = Tree::default();
    let (_, _, _, [leaf, other]) = two_lanes(&mut tree);
    tree.arrive(leaf);
    assert!(!tree.is_parked(leaf, 0), "never parked");
    let first = tree.park(leaf);
    assert!(tree.is_parked(leaf, first) && !tree.is_parked(other, first));
    tree.unpark(leaf);
    assert!(!tree.is_parked(leaf, first));
    let second = tree.park(leaf);
    assert!(tree.is_parked(leaf, second) && !tree.is_parked(leaf, first), "a timer for the first is stale");
    tree.leave(leaf);
    assert!(!tree.is_parked(leaf, second), "nobody waits");
    assert!(!tree.is_parked(Key::NONE, 1));
}

/// Accounts weigh as much as all their waiting lanes together.
#[test]
fn turns_of_large_weights_are_shared_exactly() {
    for (weights, share) in [
        ([1_442_000, 721_000], [200, 100]),
        ([721_000, 1_000], [72_100, 100]),
        ([u32::MAX - 1, u32::MAX / 2], [200, 100]),
    ] {
        let mut tree = Tree::default();
        let root = tree.add_root();
        let leaves = weights.map(|weight| {
            let account = tree.add_branch(root, weight, 0);
            tree.add_leaf(account)
        });
        let all: usize = share.iter().sum();
        leaves.iter().for_each(|leaf| (0..all).for_each(|_| tree.arrive(*leaf)));
        let of_first = (0..all).filter(|_| turn(&mut tree, root, &leaves, 1) == Some(0)).count();
        assert!(of_first.abs_diff(share[0]) <= 1, "{weights:?}: {of_first} of {all}");
    }
}

/// More turns of the largest cost than a process gives in its life.
#[test]
fn largest_costs_overflow_no_turn() {
    let years = step(u32::MAX, 1).saturating_mul(1 << 40);
    assert!(years < u128::MAX / 2);
    assert!(step(1, u32::MAX) > 0);
}

#[test]
fn parking_ends_when_the_last_request_leaves() {
    let mut tree = Tree::default();
    let (root, tier, _, leaves) = two_lanes(&mut tree);
    tree.arrive(leaves[0]);
    let path = tree.next(root).unwrap();
    tree.park(tier);
    tree.put_back(&path);
    tree.leave(leaves[0]);
    tree.arrive(leaves[1]);
    assert_eq!(turn(&mut tree, root, &leaves, 1), Some(1));
}

#[test]
fn place_is_past_when_nobody_waits_there() {
    let mut tree = Tree::default();
    let (root, _, lanes, leaves) = two_lanes(&mut tree);
    assert!(tree.is_past(lanes[0]), "it never had a turn");
    tree.arrive(leaves[0]);
    (0..5).for_each(|_| tree.arrive(leaves[1]));
    assert!(!tree.is_past(lanes[0]) && !tree.is_past(root), "somebody waits");
    assert_eq!(turn(&mut tree, root, &leaves, 3), Some(0));
    for present in 0..5 {
        assert_eq!(turn(&mut tree, root, &leaves, 1), Some(1));
        assert_eq!(
            tree.is_past(lanes[0]),
            present >= 3,
            "it has paid for three turns, and the others have had {present}"
        );
    }
    assert!(tree.is_past(root) && tree.is_past(Key::NONE));
}

/// Puts the same lanes, with the leads that they have, into another tree.
fn copied(tree: &Tree, lanes: &[NodeKey], waiting: usize) -> (Tree, NodeKey, Vec<NodeKey>) {
    let mut copy = Tree::default();
    let root = copy.add_root();
    let tier = copy.add_branch(root, 1, 0);
    let mut in_order: Vec<_> = (0..lanes.len()).map(|lane| (tree.lead(lanes[lane]), lane)).collect();
    in_order.sort_unstable_by_key(|((_, since), _)| *since);
    let mut leaves = vec![Key::NONE; lanes.len()];
    for ((lead, _), lane) in in_order {
        let node = copy.add_branch(tier, tree.nodes[lanes[lane]].weight, 0);
        leaves[lane] = copy.add_leaf(node);
        copy.set_lead(node, lead);
        (0..waiting).for_each(|_| copy.arrive(leaves[lane]));
        // Somebody waits there: its place is not to be changed any more.
        copy.set_lead(node, step(1_000, 1));
        assert_eq!(copy.lead(node).0, lead);
    }
    (copy, root, leaves)
}

#[test]
fn copied_leads_give_the_same_turns() {
    let mut random = fastrand::Rng::with_seed(3);
    let mut tree = Tree::default();
    let root = tree.add_root();
    let tier = tree.add_branch(root, 1, 0);
    let lanes = [1, 2, 3, 5].map(|weight| tree.add_branch(tier, weight, 0));
    let leaves = lanes.map(|lane| tree.add_leaf(lane));
    for leaf in leaves {
        (0..200).for_each(|_| tree.arrive(leaf));
    }
    for _ in 0..100 {
        turn(&mut tree, root, &leaves, random.u32(1..9));
    }
    assert!(lanes.iter().any(|lane| tree.lead(*lane).0 > 0));
    let (mut copy, copied_root, copied_leaves) = copied(&tree, &lanes, 100);
    let costs: Vec<u32> = (0..100).map(|_| random.u32(1..9)).collect();
    let turns = |tree: &mut Tree, root, leaves: &[NodeKey]| -> Vec<usize> {
        costs.iter().map(|cost| turn(tree, root, leaves, *cost).unwrap()).collect()
    };
    assert_eq!(turns(&mut copy, copied_root, &copied_leaves), turns(&mut tree, root, &leaves));
    assert_eq!(tree.lead(Key::NONE), (0, 0));
    tree.set_lead(Key::NONE, 1);
}

#[test]
fn lead_counts_from_the_present() {
    let mut tree = Tree::default();
    let (root, _, lanes, leaves) = two_lanes(&mut tree);
    (0..2).for_each(|_| tree.arrive(leaves[0]));
    (0..2).for_each(|_| assert_eq!(turn(&mut tree, root, &leaves, 5), Some(0)));
    assert_eq!(tree.lead(lanes[0]).0, step(5, 1));
    tree.set_lead(lanes[1], step(7, 1));
    assert_eq!((tree.lead(lanes[1]).0, tree.nodes[lanes[1]].start), (step(7, 1), step(12, 1)));
}

#[test]
fn idle_node_is_freed_at_once() {
    let mut tree = Tree::default();
    let (root, _, lanes, leaves) = two_lanes(&mut tree);
    leaves.iter().for_each(|leaf| tree.arrive(*leaf));
    assert_eq!(turn(&mut tree, root, &leaves, 1), Some(0));
    tree.discard(leaves[0]);
    tree.discard(lanes[0]);
    assert_eq!(tree.len(), 4);
    assert_eq!(turn(&mut tree, root, &leaves, 1), Some(1));
}

#[test]
fn child_node_outlives_its_discarded_parent() {
    let mut tree = Tree::default();
    let (root, tier, lanes, leaves) = two_lanes(&mut tree);
    tree.arrive(leaves[0]);
    tree.leave(leaves[0]);
    assert!(tree.next(root).is_none(), "the tier is taken out, with its lane in its heap, and the leaf in the lane's");
    for (number, node) in [tier, lanes[0], leaves[0]].into_iter().enumerate() {
        tree.discard(node);
        assert_eq!(tree.len(), 5 - number);
    }
}

#[test]
fn memory_of_freed_nodes_returns_in_steps() {
    let mut tree = Tree::default();
    let root = tree.add_root();
    let nodes: Vec<NodeKey> = (0..5_000).map(|_| tree.add_branch(root, 1, 0)).collect();
    nodes.into_iter().for_each(|node| tree.discard(node));
    assert!(tree.shrink(1), "there is more");
    assert!(!tree.shrink(usize::MAX));
    assert!(!tree.shrink(1));
}

#[test]
fn leaf_leads_to_queue_and_root() {
    let mut tree = Tree::default();
    let (root, tier, _, leaves) = two_lanes(&mut tree);
    let queue = Key::from_bits(7);
    tree.set_queue(leaves[0], queue);
    assert_eq!(
        [leaves[0], leaves[1], tier, Key::NONE].map(|leaf| tree.queue_of(leaf)),
        [queue, Key::NONE, Key::NONE, Key::NONE]
    );
    let other = tree.add_root();
    assert_eq!([leaves[1], tier, root, other].map(|node| tree.root_of(node)), [root, root, root, other]);
}

#[test]
fn parked_lanes_leave_the_backlog_above() {
    let mut tree = Tree::default();
    let root = tree.add_root();
    let tier = tree.add_branch(root, 1, 0);
    let lanes = [tree.add_lane(tier, 1, 0), tree.add_lane(tier, 1, 0)];
    let leaves = lanes.map(|lane| tree.add_leaf(lane));
    for (leaf, requests) in leaves.into_iter().zip([2, 3]) {
        (0..requests).for_each(|_| tree.arrive(leaf));
    }
    let free = |tree: &Tree| [root, tier].map(|node| tree.backlog_of_free_lanes(node));
    assert_eq!(free(&tree), [5, 5]);
    tree.park(tier);
    assert_eq!(free(&tree), [5, 5], "a limit of all lanes stops them");
    tree.park(lanes[0]);
    tree.park(lanes[0]);
    assert_eq!(free(&tree), [3, 3]);
    tree.arrive(leaves[0]);
    tree.leave(leaves[1]);
    assert_eq!((free(&tree), tree.backlog(tier)), ([2, 2], 5));
    (0..3).for_each(|_| tree.leave(leaves[0]));
    assert_eq!(free(&tree), [2, 2], "the last request of a lane unparks it");
    tree.arrive(leaves[0]);
    assert_eq!(free(&tree), [3, 3]);
    tree.park(lanes[1]);
    tree.unpark(lanes[1]);
    tree.unpark(lanes[1]);
    assert_eq!(free(&tree), [3, 3]);
}
