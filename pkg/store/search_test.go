package store_test

import (
	"testing"

	"github.com/tocsin-oncall/tocsin/pkg/api"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// A filter without an index looks at so much and no more: its pages end early and go on, and each row is on one of them.
func TestSearchForDeliveriesIsBounded(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const rows = 4500
	s.SearchWindows(200)
	if _, err := s.db.Exec(t.Context(), `insert into delivery (id, kind, priority, notifier, target, state, created_at, settled_at)
		select ('01980000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, 'event', 3, case when n % 2000 = 5 then 'rare' else 'often' end, 'url', 'sent', now(), now()
		from generate_series(1, $1::int) n`, rows); err != nil {
		t.Fatal(err)
	}
	var found, pages int
	for cursor := ""; ; pages++ {
		l, err := s.ListDeliveries(t.Context(), store.DeliveryFilter{Notifier: "rare", Limit: 50, Cursor: cursor})
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range l.Items {
			if found++; d.Notifier != "rare" {
				t.Errorf("found %+v", d)
			}
		}
		if cursor = l.NextCursor; cursor == "" {
			break
		}
	}
	if found != 3 || pages != 4 {
		t.Errorf("found %d on %d pages", found, pages+1)
	}
	l, err := s.ListDeliveries(t.Context(), store.DeliveryFilter{Kind: "event", Limit: 50})
	if err != nil || len(l.Items) != 50 || l.NextCursor == "" {
		t.Errorf("a usual page: %d, %q, %v", len(l.Items), l.NextCursor, err)
	}
	var all int
	for cursor := ""; all < 200; {
		l, err := s.ListDeliveries(t.Context(), store.DeliveryFilter{State: "sent", Limit: api.MaxLimit, Cursor: cursor})
		if err != nil || len(l.Items) != api.MaxLimit {
			t.Fatalf("%d, %v", len(l.Items), err)
		}
		all, cursor = all+len(l.Items), l.NextCursor
	}
}
