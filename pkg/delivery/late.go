package delivery

import "github.com/google/uuid"

// Late decides what an answer does that came after its lease was lost. It helps only an undecided delivery on the same
// effect with no call in flight; otherwise it only explains. late is the outcome that the answer would have given. A success
// counts although newer attempts failed or are in doubt themselves: what is there is there, and one more create would be
// one too many.
func (d Delivery) Late(_ Env, a Attempt, late Outcome, ref Reference) (Step, bool) {
	switch {
	case a.Effect != d.Effect:
		return Step{}, false
	case a.Operation == OpEdit:
		return d.lateEdit(a, late)
	case d.OpenAttempt != uuid.Nil || d.edits():
		return Step{}, false
	case d.Kind == Thread && a.Key != d.Key() && (d.Doubt == nil || a.Key != d.Doubt.Key):
		return Step{}, false // that reply was told by a newer attempt
	}
	switch d.State {
	case Pending, Held, Exhausted, Expired:
	default:
		return Step{}, false
	}
	c := d.stay()
	switch late {
	case OutcomeSent:
		return d.sent(c, a, ref, "late_answer"), true
	case OutcomeFailed:
		if d.Doubt == nil || d.Doubt.Key != a.Key || !d.Doubt.Since.Equal(a.StartedAt) || !d.Doubt.last().Equal(a.StartedAt) {
			return Step{}, false // another attempt is in doubt too, and stays so
		}
		c.Doubt = nil
		if d.State == Held || d.State == Pending && d.Leased() {
			return d.again(c, 0, false, "late_answer", ""), true // to be judged anew, without the doubt
		}
		return d.note(c), true
	}
	return Step{}, false
}

// lateEdit looks at edits of any age: one that may have arrived after a newer one has put an old face on the object.
func (d Delivery) lateEdit(a Attempt, late Outcome) (Step, bool) {
	if late == OutcomeFailed || !d.edits() || d.State != Sent && d.State != Pending {
		return Step{}, false
	}
	c := d.stay()
	switch {
	case d.OpenAttempt != uuid.Nil:
		c.Doubt = d.doubt(a) // whichever came last at the provider: the call in flight is followed by one more
		return d.note(c), true
	case a.Revision < d.Applied:
		c.Applied = a.Revision
		return d.again(c, 0, false, "late_answer", ""), true
	case late == OutcomeSent && d.State == Pending && a.Number == d.Attempts && a.Revision > d.Applied:
		return d.sent(c, a, Reference{}, "late_answer"), true
	}
	return Step{}, false
}
