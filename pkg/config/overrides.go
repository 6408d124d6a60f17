package config

import (
	"slices"

	"github.com/tocsin-oncall/tocsin/pkg/oncall"
)

// WithOverrides is the file with overrides on its schedules: whatever asks it who is on call gets the answer that holds. One
// that puts somebody on call whom the file does not know any more is passed over, for nobody could be reached by it.
func (f *File) WithOverrides(bySchedule map[string][]oncall.Override) *File {
	if len(bySchedule) == 0 {
		return f
	}
	g := *f
	g.Schedules = slices.Clone(f.Schedules)
	for i := range g.Schedules {
		s := &g.Schedules[i]
		for _, o := range bySchedule[s.ID] {
			if _, known := f.User(o.User); known {
				s.Overrides = append(s.Overrides[:len(s.Overrides):len(s.Overrides)], o)
			}
		}
	}
	return &g
}
