package worker_test

import (
	"testing"

	"github.com/tocsin-oncall/tocsin/pkg/config"
)

// A new file comes into force between the claim and the begin: what it has removed is not called, and what it has changed is
// prepared anew and goes out as the new file has it.
func TestFileChangesBeforeTheBegin(t *testing.T) {
	t.Parallel()
	s := newSite(t, hook("changed"), hook("removed"), hook("same"))
	i := s.incident("a")
	changed, removed, same := s.events(i, "changed", 1)[0], s.events(i, "removed", 1)[0], s.events(i, "same", 1)[0]
	before := s.desk("changed")
	prepared, on := make(chan bool, 10), s.gate()
	s.start("first", hooks{accounts: func() {
		prepared <- true
		on.pass()
	}})
	s.comes("the preparation", prepared)
	s.provide("changed", newDesk(t))
	s.change(func(f *config.File) {
		n := f.Notifiers["changed"]
		n.URL = "http://elsewhere.example.com/"
		f.Notifiers["changed"] = n
		delete(f.Notifiers, "removed")
	})
	on.open()
	s.until("what stayed is sent", func() bool { return s.row(changed).State == "sent" && s.row(same).State == "sent" })
	if got := s.outcomes(changed); got != "[create sent by worker]" {
		t.Error(got)
	}
	if a := s.attempts(changed); len(a) != 1 || a[0].Address != "http://elsewhere.example.com/" {
		t.Errorf("%+v", a)
	}
	if n := len(before.all()); n != 0 {
		t.Errorf("%d calls with what the old file had", n)
	}
	s.until("what was removed is given back", func() bool { return !s.row(removed).Leased })
	if r := s.row(removed); r.State != "pending" || r.Attempts != 0 || len(s.desk("removed").all()) != 0 {
		t.Errorf("%+v", r)
	}
}

// The same between the attempt's commit and its call: it is closed as not called, costs no try and leaves no doubt.
func TestFileChangesBeforeTheCall(t *testing.T) {
	t.Parallel()
	s := newSite(t, hook("audit"))
	id := s.events(s.incident("a"), "audit", 1)[0]
	prepared, on := make(chan bool, 10), s.gate()
	first := s.start("first", hooks{accounts: func() {
		prepared <- true
		on.pass()
	}})
	s.comes("the preparation", prepared)
	unlock := s.lock(id)
	defer unlock()
	on.open()
	s.until("the begin", func() bool { return first.line.executed("Begin") == 1 })
	s.change(func(f *config.File) { delete(f.Notifiers, "audit") })
	unlock()
	s.until("it is given back", func() bool { r := s.row(id); return r.Attempts == 1 && !r.Leased })
	if a := s.attempts(id); len(a) != 1 || a[0].Outcome != "failed" || a[0].Evidence != "not_called" || a[0].Reason != "reload" {
		t.Errorf("%+v", a)
	}
	if r := s.row(id); r.State != "pending" || r.Tries != 0 || r.Doubt || len(s.desk("audit").all()) != 0 {
		t.Errorf("%+v", r)
	}
	s.change(func(f *config.File) { f.Notifiers["audit"] = hook("audit") })
	s.settled()
	if got := s.outcomes(id); got != "[create failed by worker create sent by worker]" {
		t.Error(got)
	}
}
