package config

import (
	"maps"
	"slices"
	"strings"
)

// suggest is a hint at the known name that is nearest to a mistaken one, or "" where none is near.
func suggest(mistaken string, known []string) string {
	best, name := 1+max(1, len(mistaken)/3), ""
	lower := strings.ToLower(mistaken)
	for _, k := range slices.Sorted(slices.Values(known)) {
		if d := distance(lower, strings.ToLower(k)); d < best && d < max(len(k), len(mistaken)) { // something in common
			best, name = d, k
		}
	}
	if name == "" {
		return ""
	}
	return "did you mean " + name + "?"
}

// distance counts the letters that must be added, dropped, changed or swapped with their neighbour to make b of a. Long
// names are not compared.
func distance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return max(len(a), len(b))
	}
	var before, last, row [65]int
	for j := range len(b) + 1 {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}

// keys are the keys of a map, in order.
func keys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
