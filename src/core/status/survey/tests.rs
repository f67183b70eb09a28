use super::*;

#[test]
fn lane_states_are_ordered_by_urgency() {
    let now = Time::ZERO + std::time::Duration::from_secs(10);
    let calm = Brief {
        waiting: [0; 3],
        in_flight: 0,
        held: false,
        paused_until: Time::ZERO,
        slowed: false,
        left: Some((30, 40)),
    };
    let later = now + std::time::Duration::from_secs(1);
    let dead = Troubles { is_unreachable: true, ..Troubles::default() };
    assert_eq!(facts(None, dead, now).state, LaneState::Unreachable);
    assert_eq!(facts(Some(Brief { slowed: true, ..calm }), dead, now).state, LaneState::Unreachable);
    assert_eq!(facts(Some(Brief { held: true, ..calm }), dead, now).state, LaneState::Held);
    for (brief, reconnect, state) in [
        (None, false, LaneState::Idle),
        (None, true, LaneState::Reconnect),
        (Some(calm), false, LaneState::Idle),
        (Some(Brief { in_flight: 1, ..calm }), false, LaneState::Sending),
        (Some(Brief { in_flight: 1, waiting: [0, 0, 2], ..calm }), false, LaneState::Waiting),
        (Some(Brief { slowed: true, waiting: [1, 0, 0], ..calm }), false, LaneState::Throttled),
        (Some(Brief { paused_until: later, ..calm }), false, LaneState::Paused),
        (Some(Brief { paused_until: now, ..calm }), false, LaneState::Idle),
        (Some(Brief { paused_until: later, held: true, ..calm }), false, LaneState::Held),
        (Some(Brief { held: true, ..calm }), true, LaneState::Reconnect),
    ] {
        let troubles = Troubles { needs_reconnect: reconnect, ..Troubles::default() };
        assert_eq!(facts(brief, troubles, now).state, state, "{brief:?}");
    }
    let room = |left| facts(Some(Brief { left, ..calm }), Troubles::default(), now).room;
    assert_eq!(
        [room(Some((30, 40))), room(None), room(Some((0, 0))), room(Some((u32::MAX, 1)))],
        [750, 1_000, 0, 1_000]
    );
}
