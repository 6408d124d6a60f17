package api

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Replica is a process that has been heard of within a day. One that stopped as it should is not among them.
type Replica struct {
	ID            string     `json:"id"`
	Version       string     `json:"version"`
	Checksum      string     `json:"checksum" doc:"Of the file in force."`
	Notifiers     []string   `json:"notifiers" doc:"Those that its file knows."`
	StartedAt     time.Time  `json:"started_at"`
	SeenAt        time.Time  `json:"seen_at" doc:"Its last heartbeat."`
	SilentSeconds int        `json:"silent_seconds" doc:"Since its last heartbeat, by the database's clock."`
	Live          bool       `json:"live" doc:"Its last heartbeat is younger than half a minute."`
	ReadAt        *time.Time `json:"read_at,omitempty" doc:"When it took its file."`
	FileError     string     `json:"file_error,omitempty" doc:"Why it keeps an older file than the one on its disk."`
}

// Replicas are all of them, and in what the live ones differ.
type Replicas struct {
	Items       []Replica `json:"items" doc:"The longest running first."`
	SameFile    bool      `json:"same_file" doc:"All live replicas have the same file in force, and none refuses the one on its disk."`
	Differences []string  `json:"differences" doc:"In what the live replicas differ, in words."`
}

// Compare says in what the live replicas differ.
func (r *Replicas) Compare() {
	r.SameFile, r.Differences = true, []string{}
	files, versions, knows := map[string][]string{}, map[string][]string{}, map[string][]string{}
	live := 0
	for _, one := range r.Items {
		if !one.Live {
			continue
		}
		live++
		files[one.Checksum] = append(files[one.Checksum], one.ID)
		versions[one.Version] = append(versions[one.Version], one.ID)
		for _, n := range one.Notifiers {
			knows[n] = append(knows[n], one.ID)
		}
		if one.FileError != "" {
			r.SameFile = false
			r.Differences = append(r.Differences, fmt.Sprintf("%s refuses the file on its disk and keeps %s", one.ID, one.Checksum))
		}
	}
	differ := func(what string, all map[string][]string) {
		var lines []string
		for _, v := range slices.Sorted(maps.Keys(all)) {
			lines = append(lines, fmt.Sprintf("%s on %s", v, strings.Join(all[v], ", ")))
		}
		r.Differences = append(r.Differences, what+": "+strings.Join(lines, "; "))
	}
	if len(files) > 1 {
		r.SameFile = false
		differ("different files", files)
		for _, n := range slices.Sorted(maps.Keys(knows)) {
			if len(knows[n]) < live {
				r.Differences = append(r.Differences, fmt.Sprintf("only %s knows the notifier %s", strings.Join(knows[n], ", "), n))
			}
		}
	}
	if len(versions) > 1 {
		differ("different versions", versions)
	}
}
