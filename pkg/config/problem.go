package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Problem is one mistake in a file.
type Problem struct {
	File         string // the file's name as it was given
	Line, Column int    // from 1; 0: about the file as a whole
	Path         string // the key's path, e.g. "notifiers.ops-slack.timeout"; "" about the file as a whole
	Message      string // what is wrong
	Hint         string // how to mend it; may be empty
}

// String is FILE:LINE:COLUMN: message (hint).
func (p Problem) String() string {
	s := p.File
	if p.Line > 0 {
		s += fmt.Sprintf(":%d:%d", p.Line, p.Column)
	}
	s += ": " + p.Message
	if p.Hint != "" {
		s += " (" + p.Hint + ")"
	}
	return s
}

// Errors is every mistake of a file at once, in the order in which they stand in it.
type Errors []Problem

// Error has one line per problem.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, p := range e {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// sorted puts the problems in reading order.
func (e Errors) sorted() Errors {
	slices.SortStableFunc(e, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column), cmp.Compare(a.Message, b.Message))
	})
	return slices.Compact(e)
}
