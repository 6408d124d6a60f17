package delivery_test

import (
	"bufio"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
)

// move is one thing that can happen to a row.
type move struct {
	cause string
	do    func(*life)
}

// bounds end the enumeration: enough for a first attempt, a repeat of it, and one of the next effect or revision.
type bounds struct{ attempts, effect, desired int }

// moves are all that can happen to a row as it stands.
func moves(l *life, most bounds) []move {
	d := l.d
	var out []move
	add := func(cause string, do func(*life)) { out = append(out, move{cause, do}) }
	step := func(cause string, f func(delivery.Delivery) (delivery.Step, bool)) {
		add(cause, func(l *life) {
			s, ok := f(l.d)
			l.maybe(cause, s, ok)
		})
	}
	if d.State == delivery.Pending && (d.Token == uuid.Nil || d.OpenAttempt != uuid.Nil) {
		add("claim", func(l *life) { l.claim() })
	}
	if d.Token != uuid.Nil && d.OpenAttempt == uuid.Nil {
		for _, f := range surroundings(d.Kind) {
			add("judge", func(l *life) { l.judge(f) })
			late := f
			late.Now = t0.Add(time.Hour)
			add("judge", func(l *life) { // its lifetime is over
				l.d.ExpiresAt = t0
				l.judge(late)
				l.d.ExpiresAt = time.Time{}
			})
		}
		if d.Doubt != nil && l.env.LookUp > 0 {
			for _, look := range looks {
				// Everything has had its time; a look-up that can't be done has not yet.
				f := delivery.Facts{Now: t0.Add(24 * time.Hour), HasCard: true, CardReady: true, CardOver: true, Policy: l.env.Policy, LookUp: l.env.LookUp}
				if look == (delivery.Look{}) {
					f.Now = d.Doubt.Since.Add(time.Minute)
				}
				if d.Judge(f).LookUp {
					add("look up", func(l *life) {
						l.look = look
						l.judge(f)
						l.look = delivery.Look{}
					})
				}
			}
		}
		add("unreachable", func(l *life) { l.apply("unreachable", l.d.Unreachable("nobody_on_call", "Mend it.")) })
		add("reject", func(l *life) { l.apply("reject", l.d.Reject("payload:compose", "Mend it.")) })
		if l.odd {
			add("queued", func(l *life) {
				l.apply("queued", l.d.Queued(delivery.Facts{Now: t0, Policy: l.env.Policy}, time.Minute, "queue", "paused", ""))
			})
		}
		add("give back", func(l *life) { l.apply("give back", l.d.GiveBack(time.Second, "shutdown")) })
	}
	if d.OpenAttempt != uuid.Nil {
		for _, name := range slices.Sorted(maps.Keys(answers)) {
			if !l.odd && slices.Contains(oddAnswers, name) {
				continue
			}
			add("finish", func(l *life) { l.finish(answers[name]) })
		}
	}
	for i := range l.lost {
		for _, o := range []delivery.Outcome{delivery.OutcomeSent, delivery.OutcomeFailed, delivery.OutcomeUnknown} {
			add("late", func(l *life) { l.late(i, o) })
		}
	}
	if d.Desired < most.desired {
		step("raise", func(d delivery.Delivery) (delivery.Step, bool) { return d.Raise(d.Desired + 1) })
		step("answer", func(d delivery.Delivery) (delivery.Step, bool) { return d.Answer("acknowledged", d.Desired+1) })
	}
	step("cancel", func(d delivery.Delivery) (delivery.Step, bool) { return d.Cancel("resolved") })
	step("expire", delivery.Delivery.Expire)
	step("remove", delivery.Delivery.Remove)
	step("exhaust", delivery.Delivery.Exhaust)
	step("revive", delivery.Delivery.Revive)
	for _, a := range []delivery.Action{delivery.AssumeDelivered, delivery.CancelIt, delivery.SendAgain} {
		if a == delivery.SendAgain && d.Effect >= most.effect {
			continue
		}
		step(string(a), func(d delivery.Delivery) (delivery.Step, bool) {
			s, err := d.Decide(a)
			return s, err == nil
		})
	}
	if !l.env.Resolved {
		add("resolve the incident", func(l *life) { l.env.Resolved = true })
	}
	return out
}

// oddAnswers are those that leave something on the row which multiplies all that follows.
var oddAnswers = []string{"payload", "buttons", "metadata", "moved", "gone", "denied"}

// arrow is one way from a state to another.
type arrow struct{ from, to, cause string }

func (a arrow) String() string { return fmt.Sprintf("%s -> %s: %s", a.from, a.to, a.cause) }

// explore lives through everything that can happen to a delivery. It collects the arrows that are taken,
// with their reasons, and the rules that were broken, each with the shortest way to it.
func explore(first *life, most bounds) (arrows map[arrow]map[string]bool, wrong []string, lives int) {
	type node struct {
		l     *life
		from  *node
		cause string
	}
	arrows = map[arrow]map[string]bool{}
	seen := map[key]bool{first.key(): true}
	for queue := []*node{{l: first, cause: string(first.d.Kind)}}; len(queue) > 0; queue = queue[1:] {
		n := queue[0]
		for _, m := range moves(n.l, most) {
			next := n.l.clone()
			m.do(next)
			for _, w := range next.wrong {
				way := m.cause + ": " + w
				for at := n; at != nil; at = at.from {
					way = at.cause + " > " + way
				}
				wrong = append(wrong, way)
			}
			// What is only noted, and a claim, are no arrows: the state stays and nobody waits for less or more.
			moved := next.d.State != n.l.d.State
			if again := n.l.d.Token != uuid.Nil && next.d.Token == uuid.Nil && next.d.State == delivery.Pending; moved || again {
				a := arrow{string(n.l.d.State), string(next.d.State), m.cause}
				if arrows[a] == nil {
					arrows[a] = map[string]bool{}
				}
				reason := next.d.Reason
				if reason == "" {
					reason = "-"
				}
				arrows[a][reason] = true
			}
			if key := next.key(); !seen[key] {
				seen[key] = true
				queue = append(queue, &node{next, n, m.cause})
			}
		}
	}
	return arrows, wrong, len(seen)
}

// Every arrow that the code can take is in the legend of states.txt, with its reasons, and no other.
func TestStatesAreDrawnAsTheyAre(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("states.txt")
	if err != nil {
		t.Fatal(err)
	}
	drawn := legend(t, string(text))
	taken := map[arrow]map[string]bool{}
	live := func(first *life, most bounds) {
		first.mostAttempts = most.attempts
		arrows, wrong, lives := explore(first, most)
		for _, w := range wrong[:min(len(wrong), 5)] {
			t.Errorf("on_unknown %s, capped %v: %s", first.env.Policy.OnUnknown, first.env.Retries.Capped, w)
		}
		if lives < 100 {
			t.Errorf("%s: only %d different rows were reached", first.d.Kind, lives)
		}
		for a, reasons := range arrows {
			if taken[a] == nil {
				taken[a] = map[string]bool{}
			}
			maps.Copy(taken[a], reasons)
		}
	}
	// The other kinds decide as one of these does: finish.txt, judge.txt and their neighbours show it.
	once := delivery.Retries{Capped: true, Count: 1, Delay: time.Second, MaxDelay: time.Minute}
	live(newLife(delivery.Page, delivery.Retry, once), bounds{3, 2, 2})
	live(newLife(delivery.Page, delivery.Hold, delivery.DefaultRetries), bounds{2, 2, 2})
	live(newLife(delivery.Card, delivery.Retry, once), bounds{3, 2, 2})
	live(newLife(delivery.Thread, delivery.Retry, once), bounds{3, 2, 2})
	live(newLife(delivery.Thread, delivery.Hold, delivery.DefaultRetries), bounds{2, 2, 2})
	live(newLife(delivery.Call, delivery.Hold, delivery.DefaultRetries), bounds{2, 2, 2})
	live(newLife(delivery.Notice, delivery.Retry, delivery.DefaultRetries), bounds{2, 2, 2})
	// What is left out after a refusal, look-ups and turns have lives of their own: all of it at once is too much.
	for _, k := range []delivery.Kind{delivery.Card, delivery.Thread} {
		asked := newLife(k, delivery.Retry, delivery.DefaultRetries)
		asked.env.LookUp = 20 * time.Second
		live(asked, bounds{2, 1, 2})
	}
	asked := newLife(delivery.Notice, delivery.Hold, once)
	asked.env.LookUp = 20 * time.Second
	live(asked, bounds{3, 1, 1})
	for _, k := range []delivery.Kind{delivery.Page, delivery.Card, delivery.Thread} {
		odd := newLife(k, delivery.Retry, delivery.DefaultRetries)
		odd.odd = true
		live(odd, bounds{3, 1, 1})
	}
	// Edits that overtake each other need more of them, on a card that is out.
	out := newLife(delivery.Card, delivery.Retry, delivery.DefaultRetries)
	out.d.State, out.d.Reference, out.d.Applied, out.d.Attempts = delivery.Sent, made, 1, 1
	live(out, bounds{4, 1, 3})
	var lines []string
	for a, reasons := range taken {
		lines = append(lines, a.String()+" ("+strings.Join(slices.Sorted(maps.Keys(reasons)), ", ")+")")
	}
	slices.Sort(lines)
	for _, l := range lines {
		if !slices.Contains(drawn, l) {
			t.Errorf("the code takes an arrow that states.txt does not list: %s", l)
		}
	}
	for _, l := range drawn {
		if !slices.Contains(lines, l) {
			t.Errorf("states.txt lists an arrow that the code never takes: %s", l)
		}
	}
	art, _, _ := strings.Cut(string(text), legendHead)
	for _, s := range delivery.States {
		if !strings.Contains(art, string(s)) {
			t.Errorf("the drawing does not show %s", s)
		}
	}
}

const legendHead = "## Arrows"

// legend reads the machine-readable part: "from -> to: cause (reason, reason)"; "-" is no reason.
func legend(t *testing.T, text string) []string {
	t.Helper()
	_, part, ok := strings.Cut(text, legendHead)
	if !ok {
		t.Fatalf("states.txt has no line %q", legendHead)
	}
	var out []string
	for s := bufio.NewScanner(strings.NewReader(part)); s.Scan(); {
		line := strings.Join(strings.Fields(s.Text()), " ")
		if strings.Contains(line, " -> ") {
			out = append(out, line)
		}
	}
	if len(out) == 0 {
		t.Fatal("states.txt lists no arrows")
	}
	return out
}
