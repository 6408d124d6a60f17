package app

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tocsin-oncall/tocsin/pkg/api"
)

// TestPeerAlertmanager has the real Alertmanager, unmodified, as the client.
func TestPeerAlertmanager(t *testing.T) {
	t.Parallel()
	peerAlertmanager.binary(t)
	w := newPeerWorld(t)
	w.am = startAlertmanager(t, w.door("am"), w.token)

	t.Run("groups", func(t *testing.T) {
		t.Parallel()
		w.groups(t)
	})
	t.Run("again after a refusal", func(t *testing.T) {
		t.Parallel()
		w.refused(t)
	})
	t.Run("re-sends", func(t *testing.T) {
		t.Parallel()
		w.resent(t)
	})
	t.Run("cut short", func(t *testing.T) {
		t.Parallel()
		w.cut(t)
	})
	t.Run("fires anew", func(t *testing.T) {
		t.Parallel()
		w.anew(t)
	})
	t.Run("an alert that always fires is a heartbeat", func(t *testing.T) {
		t.Parallel()
		w.watchdog(t)
	})
}

// TestPeerAlertmanagers has two of them that know nothing of each other, as a pair whose link is cut, and kills tocsin
// meanwhile.
func TestPeerAlertmanagers(t *testing.T) {
	t.Parallel()
	peerAlertmanager.binary(t)
	w := newPeerWorld(t)
	pair := []*alertmanager{startAlertmanager(t, w.door("first"), w.token), startAlertmanager(t, w.door("second"), w.token)}
	post := func(alerts ...amAlert) {
		t.Helper()
		for _, a := range pair {
			a.post(t, alerts...)
		}
	}
	one := fires("DiskFull", "pair", "db-1")
	post(one)
	w.shows(t, "DiskFull in pair", 1, "open", "Paging Ana Torres")
	eventually(t, "both have told", func() bool { return len(w.tap.taken("first", "pair")) > 0 && len(w.tap.taken("second", "pair")) > 0 })

	w.settled(t)
	w.replica.kill()
	two := fires("DiskFull", "meanwhile", "db-1")
	post(two)
	eventually(t, "both have tried in vain", func() bool { return w.tap.lost("first") > 1 && w.tap.lost("second") > 1 })
	w.start(t)
	w.shows(t, "DiskFull in meanwhile", 1, "open", "Paging Ana Torres")

	post(one.ended(), two.ended())
	for _, cluster := range []string{"pair", "meanwhile"} {
		w.shows(t, "DiskFull in "+cluster, 1, "resolved", "Resolved after")
		eventually(t, "both have told the end", func() bool {
			for _, sender := range []string{"first", "second"} {
				if all := w.tap.taken(sender, cluster); len(all) == 0 || all[len(all)-1].Status != "resolved" {
					return false
				}
			}
			return true
		})
		if n := len(w.incidents(t, cluster)); n != 1 {
			t.Errorf("%s is %d incidents", cluster, n)
		}
		w.shows(t, "DiskFull in "+cluster, 1, "resolved", "Resolved after")
	}
	if pages := w.slack.Messages("U0ANA"); len(pages) != 2 {
		t.Errorf("%d pages for two incidents: %+v", len(pages), pages)
	}
}

// groups: a group is an incident with one card; it stays open while some of it fires, and closes with the last.
func (w *peerWorld) groups(t *testing.T) {
	one, two, other := fires("DiskFull", "north", "db-1"), fires("DiskFull", "north", "db-2"), fires("DiskFull", "south", "db-1")
	w.am.post(t, one, two, other)
	w.shows(t, "DiskFull in north", 1, "open", "Paging Ana Torres")
	w.shows(t, "DiskFull in south", 1, "open", "Paging Ana Torres")
	if i := w.incident(t, `cluster="north"`); i.Key != w.tap.of(`cluster="north"`)[0].GroupKey || i.State != "open" || i.Firing != 2 || i.Source != "alertmanager" || i.Topic != "alert.diskfull.critical.db" {
		t.Errorf("the group's incident is %+v", i)
	}
	for _, m := range w.tap.of("DiskFull") {
		if m.Code != http.StatusAccepted || !strings.HasPrefix(m.auth, "Bearer ") {
			t.Errorf("a message was answered with %d %s", m.Code, m.Answer)
		}
	}

	w.am.post(t, one.ended(), two)
	w.shows(t, "DiskFull in north", 1, "open", "Alert resolved: DiskFull in north (")
	if i := w.incident(t, `cluster="north"`); i.State != "open" || i.Firing != 1 || i.Resolved != 1 {
		t.Errorf("a partly resolved group's incident is %+v", i)
	}

	w.am.post(t, two.ended())
	card := w.shows(t, "DiskFull in north", 1, "resolved", "Resolved after")
	i := w.incident(t, `cluster="north"`)
	if i.State != "resolved" || i.Firing != 0 || i.Resolved != 2 || i.ResolvedBy != "source:alertmanager" {
		t.Errorf("a resolved group's incident is %+v", i)
	}
	if pages := w.slack.Messages("U0ANA"); len(pages) == 0 {
		t.Error("nobody was paged")
	}
	if replies := w.slack.Replies("C0OPS", card.TS); strings.Contains(replies[0].Text, "Resolved") {
		t.Errorf("the closing reply came first: %+v", replies)
	}
	if i := w.incident(t, `cluster="south"`); i.State != "open" || i.Firing != 1 {
		t.Errorf("the other group's incident is %+v", i)
	}
	w.shows(t, "DiskFull in south", 1, "open", "Paging Ana Torres")
}

// refused: while the database takes nothing, the answer is 503, and Alertmanager sends again by itself.
func (w *peerWorld) refused(t *testing.T) {
	conn, err := pgx.Connect(t.Context(), w.database)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	// What a full disk does, for this one group.
	if _, err := conn.Exec(t.Context(), `
		create function refuse() returns trigger language plpgsql as $$ begin raise exception 'no space left on device' using errcode = '53100'; end $$;
		create trigger refuse before insert on incident for each row when (new.key like '%cluster="refused"%') execute function refuse()`); err != nil {
		t.Fatal(err)
	}
	w.am.post(t, fires("NoSpace", "refused", "db-1"))
	eventually(t, "tocsin refuses", func() bool { return len(w.tap.of("refused")) >= 2 })
	for _, m := range w.tap.of("refused") {
		if m.Code != http.StatusServiceUnavailable || strings.Contains(m.Answer, "no space") {
			t.Errorf("the refusal was %d %s", m.Code, m.Answer)
		}
	}
	if len(w.cards("NoSpace")) != 0 {
		t.Error("a refused alert has a card")
	}
	if _, err := conn.Exec(t.Context(), "drop trigger refuse on incident"); err != nil {
		t.Fatal(err)
	}
	w.shows(t, "NoSpace in refused", 1, "open", "Paging Ana Torres")
	if i := w.incident(t, `cluster="refused"`); i.Count != 1 || i.Firing != 1 {
		t.Errorf("the incident after refusals is %+v", i)
	}
}

// resent: what Alertmanager repeats is counted, and nothing else moves.
func (w *peerWorld) resent(t *testing.T) {
	w.am.post(t, fires("Slow", "again", "db-1"))
	card := w.shows(t, "Slow in again", 1, "open", "Paging Ana Torres")
	eventually(t, "Alertmanager repeats", func() bool { return len(w.tap.of("again")) >= 4 })
	eventually(t, "the repeats are counted", func() bool { return w.incident(t, `cluster="again"`).Count >= 4 })
	i := w.incident(t, `cluster="again"`)
	if i.Firing != 1 || i.State != "open" || len(i.Timeline) != 2 {
		t.Errorf("after %d repeats the incident is %+v", len(w.tap.of("again")), i)
	}
	if n := one[int](t, w.database, "select max(desired_revision) from card_state where incident_id = $1::uuid", i.ID); n != 1 {
		t.Errorf("repeats raised the card's revision to %d", n)
	}
	if m, ok := w.slack.Message(card.TS); !ok || len(m.Edits) != 0 {
		t.Errorf("repeats edited the card: %+v", m)
	}
}

// cut: where Alertmanager leaves alerts out of its messages, nobody knows their state, and nothing closes silently.
func (w *peerWorld) cut(t *testing.T) {
	one, two := fires("Lag", "cut", "db-1"), fires("Lag", "cut", "db-2")
	w.am.post(t, one, two)
	w.shows(t, "Lag in cut", 1, "open", "The source left 1 alert out")
	w.am.post(t, one.ended(), two.ended())
	w.shows(t, "Lag in cut", 1, "open", "Alert resolved: Lag in cut")
	if i := w.incident(t, `cluster="cut"`); i.State != "open" || i.Firing != 0 || i.Resolved != 1 {
		t.Errorf("the incident of a message that was cut short is %+v", i)
	}
}

// anew: the same group firing again after its end is another incident with another card; the old one stays green.
func (w *peerWorld) anew(t *testing.T) {
	a := fires("Flaps", "east", "db-1")
	w.am.post(t, a)
	w.shows(t, "Flaps in east", 1, "open", "Paging Ana Torres")
	w.am.post(t, a.ended())
	first := w.shows(t, "Flaps in east", 1, "resolved", "Resolved after")
	before := w.incident(t, `cluster="east"`)
	a.StartsAt = time.Now()
	w.am.post(t, a)
	w.shows(t, "Flaps in east", 2, "open", "Paging Ana Torres")
	if i := w.incident(t, `cluster="east"`); i.ID == before.ID || i.State != "open" || i.Key != before.Key {
		t.Errorf("firing anew made %+v after %+v", i, before)
	}
	if m, ok := w.slack.Message(first.TS); !ok || m.Colour() != chaosColours["resolved"] {
		t.Errorf("the first card is %+v", m)
	}
}

// watchdog: Alertmanager's own repeats of an alert that always fires are the calls of a heartbeat.
func (w *peerWorld) watchdog(t *testing.T) {
	w.am.post(t, fires("Watchdog", "dog", "none"))
	heartbeat := func() api.Heartbeat {
		t.Helper()
		l, err := w.client.Heartbeats(within(t))
		if err != nil || len(l.Items) != 1 {
			t.Fatalf("%+v, %v", l, err)
		}
		return l.Items[0]
	}
	var first time.Time
	eventually(t, "the heartbeat calls", func() bool {
		h := heartbeat()
		if h.State == api.HeartbeatOK {
			first = *h.CalledAt
		}
		return h.State == api.HeartbeatOK
	})
	eventually(t, "it calls again", func() bool { return heartbeat().CalledAt.After(first) })
	if i := w.incident(t, "Watchdog"); i.ID != "" {
		t.Errorf("it is an incident too: %+v", i)
	}
}
