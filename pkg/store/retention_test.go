package store_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
)

const keepFor = 30 * 24 * time.Hour

// attempted writes an attempt of a delivery at an instant, as a worker does, with its time in its id.
func (s *site) attempted(d uuid.UUID, at string) {
	s.t.Helper()
	s.exec(`insert into attempt (id, delivery_id, number, effect, effect_key, revision, operation, address, worker, lease_token, started_at)
		select (left(uuid_at(`+at+`)::text, 24) || right(gen_random_uuid()::text, 12))::uuid, $1, 1, 1, 'k', 1, 'create', 'a', 'w', gen_random_uuid(), `+at, d)
}

// oldMonths makes partitions of months that are long over, as a database that has run for long has them.
func (s *site) oldMonths(months ...string) {
	s.t.Helper()
	for _, m := range months {
		s.exec(fmt.Sprintf("create table attempt_%s partition of attempt for values from (uuid_at('%s-01 00:00Z')) to (uuid_at('%s-01 00:00Z'::timestamptz + interval '1 month'))",
			strings.ReplaceAll(m, "-", "_"), m, m))
	}
}

func (s *site) sweepRest() {
	s.t.Helper()
	if _, _, err := s.PurgeRest(s.ctx(), keepFor, 1000); err != nil {
		s.t.Fatal(err)
	}
}

// A month of attempts goes at once, unless a delivery that is still there has one in it.
func TestOldMonthsOfAttemptsAreDropped(t *testing.T) { // B7
	t.Parallel()
	s := newSite(t)
	s.oldMonths("2020-01", "2020-02", "2020-03")
	kept := s.add(s.incident("k"), delivery.Card)
	early := get[uuid.UUID](s, "select uuid_at('2020-01-10')")
	s.exec("update delivery set id = uuid_at('2020-02-10') where id = $1", kept)
	kept = get[uuid.UUID](s, "select id from delivery")
	s.attempted(kept, "'2020-02-11 10:00Z'::timestamptz")
	s.attempted(early, "'2020-01-11 10:00Z'::timestamptz") // its delivery is long gone
	before := s.partitions()
	s.sweepRest()
	want := strings.NewReplacer("attempt_2020_01 ", "", "attempt_2020_03 ", "").Replace(before)
	if got := s.partitions(); got != want {
		t.Errorf("left are %s, not %s", got, want)
	}
	if n := get[int](s, "select count(*) from attempt where delivery_id = $1", kept); n != 1 {
		t.Errorf("%d attempts of the one that stays", n)
	}
	s.exec("delete from delivery")
	s.sweepRest()
	if got := s.partitions(); strings.Contains(got, "2020") {
		t.Errorf("left are %s", got)
	}
	// This month's, and what a worker's wrong clock has put elsewhere, stay.
	if got := s.partitions(); strings.Count(got, "attempt_") != 4 {
		t.Errorf("left are %s", got)
	}
}

// A reader that stays in its transaction holds up the dropping, and not for ever whoever comes behind it.
func TestOldMonthsWaitForReaders(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.oldMonths("2020-01")
	tx, err := connect(t, s.url).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "select count(*) from attempt"); err != nil {
		t.Fatal(err)
	}
	s.sweepRest()
	if got := s.partitions(); !strings.Contains(got, "attempt_2020_01") {
		t.Errorf("it was dropped under a reader: %s", got)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.sweepRest()
	if got := s.partitions(); strings.Contains(got, "attempt_2020_01") {
		t.Errorf("it is not dropped once the reader is gone: %s", got)
	}
}
