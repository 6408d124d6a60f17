package app

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// chaosTriggers make the database write down each write of a delivery with who made it, and each change of an attempt
// that was closed already. Nothing of tocsin knows of them.
const chaosTriggers = `
create table chaos_write (n bigint generated always as identity, at timestamptz not null default clock_timestamp(), writer text not null, o delivery, w delivery);
create function chaos_note() returns trigger language plpgsql as $$
begin
  insert into chaos_write (writer, o, w) values (coalesce(current_setting('chaos.writer', true), ''), old, new);
  return null;
end $$;
create trigger chaos_note after insert or update or delete on delivery for each row execute function chaos_note();
create table chaos_rewrite (id uuid, was jsonb, became jsonb);
create function chaos_guard() returns trigger language plpgsql as $$
begin
  if tg_op = 'DELETE' or old.outcome is not null and not (old.outcome = 'unknown' and new.outcome = 'sent' and new.closed_by = 'reconcile') and
    (old.outcome, old.evidence, old.closed_by, old.finished_at, old.reason, old.error, old.reference, old.lease_token, old.effect_key, old.address) is distinct from
    (new.outcome, new.evidence, new.closed_by, new.finished_at, new.reason, new.error, new.reference, new.lease_token, new.effect_key, new.address) then
    insert into chaos_rewrite values (old.id, to_jsonb(old), to_jsonb(new));
  end if;
  return null;
end $$;
create trigger chaos_guard after update or delete on attempt for each row execute function chaos_guard();
`

// chaosRow is a delivery's row before or after a write, as text. The empty string is NULL.
type chaosRow struct {
	State, Reason, Token, Worker, Open, Reference, Next string
	Version                                             int64
	Effect, Desired, Applied                            int
	Until                                               *time.Time
	Attempts                                            int
}

// same says that two rows differ in nothing that is written down here.
func (r *chaosRow) same(o *chaosRow) bool {
	a, b := *r, *o
	if (a.Until == nil) != (b.Until == nil) || a.Until != nil && !a.Until.Equal(*b.Until) {
		return false
	}
	a.Until, b.Until = nil, nil
	return a == b
}

type chaosWrite struct {
	At         time.Time
	ID, Writer string
	Was, Is    *chaosRow // Was is nil for an insert, Is for a delete
}

func (w chaosWrite) String() string {
	return fmt.Sprintf("%s by %s: %+v -> %+v", w.At.Format("15:04:05.000"), w.Writer, w.Was, w.Is)
}

const chaosColumns = `coalesce((X).state, ''), coalesce((X).reason, ''), coalesce((X).lease_token::text, ''), coalesce((X).worker, ''),
	coalesce((X).open_attempt::text, ''), coalesce((X).reference::text, ''), coalesce((X).next_at::text, ''), coalesce((X).version, -1),
	coalesce((X).effect, 0), coalesce((X).desired, 0), coalesce((X).applied, 0), (X).lease_until, coalesce((X).attempts, 0)`

func (r *chaosRow) into() []any {
	return []any{&r.State, &r.Reason, &r.Token, &r.Worker, &r.Open, &r.Reference, &r.Next, &r.Version, &r.Effect, &r.Desired, &r.Applied, &r.Until, &r.Attempts}
}

// checkWrites walks through every write of every delivery and checks that only the current lease's holder wrote what is
// its to write. workers says which replica's id each writer's process had.
func checkWrites(t *testing.T, ctx context.Context, db *pgxpool.Pool, f *chaosFacts, workers map[string]string, blame func(string, ...any)) (writes int) {
	t.Helper()
	var rewritten int
	var example string
	if err := db.QueryRow(ctx, "select count(*), coalesce(min(was::text || ' became ' || became::text), '') from chaos_rewrite").Scan(&rewritten, &example); err != nil {
		t.Fatal(err)
	}
	if rewritten > 0 {
		blame("%d closed attempts were changed, for example %s", rewritten, example)
	}
	columns := func(row string) string { return strings.ReplaceAll(chaosColumns, "X", row) }
	rows, err := db.Query(ctx, `select at, writer, coalesce((w).id, (o).id)::text, `+columns("o")+`, `+columns("w")+` from chaos_write order by coalesce((w).id, (o).id), n`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	fence := chaosFence{facts: f, workers: workers, blame: blame}
	for rows.Next() {
		var w chaosWrite
		var was, is chaosRow
		if err := rows.Scan(append(append([]any{&w.At, &w.Writer, &w.ID}, was.into()...), is.into()...)...); err != nil {
			t.Fatal(err)
		}
		if was.Version >= 0 {
			w.Was = &was
		}
		if is.Version >= 0 {
			w.Is = &is
		}
		fence.see(w)
		writes++
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return writes
}

// chaosFence follows the writes of one delivery after another.
type chaosFence struct {
	facts   *chaosFacts
	workers map[string]string
	blame   func(string, ...any)

	id     string
	last   *chaosRow
	tokens map[string]bool // every lease token that the delivery has had
}

func (c *chaosFence) wrong(w chaosWrite, format string, args ...any) {
	c.blame("%s:\n  %s\n%s", fmt.Sprintf(format, args...), w, c.facts.explain(w.ID))
}

func (c *chaosFence) see(w chaosWrite) {
	if w.ID != c.id {
		c.id, c.last, c.tokens = w.ID, nil, map[string]bool{}
	}
	was, is := w.Was, w.Is
	switch {
	case is == nil:
		c.wrong(w, "a delivery was deleted")
		return
	case was == nil:
		c.last = is
		return
	case was.Token != "" && was.same(is) && was.Worker == c.workers[w.Writer]:
		return // its owner has put it into its destination's queue, which is seen in no column here
	case is.Version != was.Version+1 || c.last == nil || c.last.Version != was.Version:
		c.wrong(w, "a write did not raise the version by one")
	}
	c.last = is
	holder := was.Token != "" && was.Worker == c.workers[w.Writer]
	opened, closed := is.Open != "" && is.Open != was.Open, was.Open != "" && is.Open != was.Open
	switch {
	case is.Token != "" && is.Token != was.Token:
		c.claim(w)
	case closed && is.Token == was.Token:
		// The claim's second statement: what a lost lease left open.
		if a := c.facts.attempts[was.Open]; !holder || a.ClosedBy != "takeover" && a.ClosedBy != "reconcile" || a.Token == was.Token {
			c.wrong(w, "an open attempt was closed under a living lease and not by a takeover")
		}
	case closed:
		if a := c.facts.attempts[was.Open]; !holder || a.Token != was.Token || a.Worker != was.Worker || a.ClosedBy != "worker" && a.ClosedBy != "shutdown" && a.ClosedBy != "reconcile" {
			c.wrong(w, "an attempt's result was not written by its own lease")
		}
	case opened:
		if a := c.facts.attempts[is.Open]; !holder || is.Token != was.Token || a.Token != is.Token || is.Attempts != was.Attempts+1 {
			c.wrong(w, "an attempt was not begun by its own lease")
		}
	case was.Token != "" && is.Token == "" && !holder:
		// Without an open attempt anyone may settle the row at once; only late evidence gives it back.
		if is.State == "pending" && !c.late(w) {
			c.wrong(w, "a lease was given back by one who does not hold it")
		}
	case was.Token != "" && is.Token == was.Token && !holder:
		// Others only note facts.
		if is.State != was.State || is.Next != was.Next || is.Worker != was.Worker || is.Reference != was.Reference || is.Applied != was.Applied || is.Effect != was.Effect {
			c.wrong(w, "a leased row was changed by one who does not hold it")
		}
	}
	if (is.Applied != was.Applied || is.Reference != was.Reference) && !closed && !c.late(w) && !(holder && c.found(w)) {
		c.wrong(w, "what was made changed without an attempt's result, late evidence of one, or a look-up that found it")
	}
	if is.Attempts != was.Attempts && !opened {
		c.wrong(w, "attempts are counted that were not begun")
	}
}

func (c *chaosFence) claim(w chaosWrite) {
	was, is := w.Was, w.Is
	switch {
	case c.tokens[is.Token]:
		c.wrong(w, "a spent token came back")
	case was.Token != "" && (was.Until == nil || was.Until.After(w.At)):
		c.wrong(w, "a lease was taken before it had run out")
	case is.Worker != c.workers[w.Writer]:
		c.wrong(w, "a claim of %s names another replica than %s", w.Writer, c.workers[w.Writer])
	case is.State != was.State || is.Applied != was.Applied || is.Open != was.Open:
		c.wrong(w, "a claim changed more than the lease")
	}
	c.tokens[is.Token] = true
}

// found says that a look-up has found what an attempt of the row in doubt had made.
func (c *chaosFence) found(w chaosWrite) bool {
	return slices.ContainsFunc(c.facts.history[w.ID], func(a chaosAttempt) bool { return a.ClosedBy == "reconcile" })
}

// late says that an attempt of the delivery has late evidence of success from before the write: it may settle a row
// that nobody is calling for.
func (c *chaosFence) late(w chaosWrite) bool {
	for _, a := range c.facts.history[w.ID] {
		if a.LateSaid != "" && a.LateAt != nil && !a.LateAt.After(w.At) && w.Was.Open == "" {
			return true
		}
	}
	return false
}
