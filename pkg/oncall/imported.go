package oncall

import (
	"cmp"
	"slices"
	"sort"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// importedAt says who is on call by an imported layer alone.
func (l Layer) importedAt(t time.Time) ([]string, span) {
	i := sort.Search(len(l.Turns), func(i int) bool { return t.Before(l.Turns[i].End) })
	var in span
	if i > 0 {
		in.from = l.Turns[i-1].End
	}
	if i == len(l.Turns) {
		return nil, in
	}
	if turn := l.Turns[i]; !t.Before(turn.Start) {
		return turn.Users, span{turn.Start, turn.End}
	}
	in.until = l.Turns[i].Start
	return nil, in
}

// apart makes of turns that may overlap such as do not: where they do, all their people are on call, in the order of the turns.
// Those of the same people that touch become one.
func apart(turns []Turn) []Turn {
	turns = slices.DeleteFunc(slices.Clone(turns), func(t Turn) bool { return !t.Start.Before(t.End) })
	slices.SortStableFunc(turns, func(a, b Turn) int { return cmp.Or(a.Start.Compare(b.Start), a.End.Compare(b.End)) })
	var edges []time.Time
	for _, t := range turns {
		edges = append(edges, t.Start, t.End)
	}
	slices.SortFunc(edges, time.Time.Compare)
	edges = slices.CompactFunc(edges, time.Time.Equal)
	var out, open []Turn
	next := 0
	for i := 0; i+1 < len(edges); i++ {
		from, until := edges[i], edges[i+1]
		for ; next < len(turns) && !turns[next].Start.After(from); next++ {
			open = append(open, turns[next])
		}
		open = slices.DeleteFunc(open, func(t Turn) bool { return !t.End.After(from) })
		var users []string
		overlap := false
		for n, t := range open {
			overlap = overlap || n > 0 && !slices.Equal(t.Users, open[n-1].Users)
			for _, u := range t.Users {
				if !slices.Contains(users, u) {
					users = append(users, u)
				}
			}
		}
		last := len(out) - 1
		switch {
		case len(users) == 0:
		case last >= 0 && out[last].End.Equal(from) && slices.Equal(out[last].Users, users):
			out[last].End, out[last].Overlap = until, out[last].Overlap || overlap
		default:
			out = append(out, Turn{Users: users, Start: from, End: until, Overlap: overlap})
		}
	}
	return out
}

// finder knows the users of the file by all that a calendar may call them.
type finder struct {
	byEmail map[string][]string
	words   []called // the longest first, so that a name goes before a part of it
}

type called struct {
	word  string
	users []string
}

func newFinder(people []Person) finder {
	f := finder{byEmail: map[string][]string{}}
	byWord, ids := map[string][]string{}, map[string]bool{}
	for _, p := range people {
		id := plainly(p.ID)
		byWord[id], ids[id] = append(byWord[id], p.ID), true
		if p.Email != "" {
			email := strings.ToLower(p.Email)
			f.byEmail[email] = append(f.byEmail[email], p.ID)
		}
	}
	for _, p := range people {
		for _, word := range []string{plainly(p.Name), plainly(p.Email)} {
			if word != "" && !ids[word] { // an id is nobody else's name
				byWord[word] = append(byWord[word], p.ID)
			}
		}
	}
	for word, users := range byWord {
		f.words = append(f.words, called{word, users})
	}
	slices.SortFunc(f.words, func(a, b called) int { return cmp.Or(len(b.word)-len(a.word), cmp.Compare(a.word, b.word)) })
	return f
}

// plainly is a text as names are compared: lower case, with one blank between words.
func plainly(s string) string { return strings.Join(strings.Fields(strings.ToLower(s)), " ") }

// who says whom an event puts on call, and which addresses in it nobody has. Whoever is invited counts first; if nobody of them is
// a user, those whom the title names do; and if it names nobody, whoever has made the event.
func (f finder) who(e Event) (users, unknown []string) {
	add := func(ids []string) {
		for _, id := range ids {
			if !slices.Contains(users, id) {
				users = append(users, id)
			}
		}
	}
	for _, address := range e.Invited {
		if ids := f.byEmail[strings.ToLower(address)]; len(ids) > 0 {
			add(ids)
		} else {
			unknown = append(unknown, address)
		}
	}
	if len(users) > 0 {
		return users, unknown
	}
	if add(f.named(e.Summary)); len(users) > 0 {
		return users, unknown
	}
	add(f.byEmail[strings.ToLower(e.Organizer)])
	return users, unknown
}

// named are the users whom a text names by id, name or address, in the order in which it does.
func (f finder) named(text string) []string {
	text = plainly(text)
	type hit struct {
		at    int
		users []string
	}
	var hits []hit
	for _, c := range f.words {
		for from := 0; ; {
			i := strings.Index(text[from:], c.word)
			if i < 0 {
				break
			}
			i += from
			from = i + len(c.word)
			if ends(text[:i], false) && ends(text[from:], true) {
				hits = append(hits, hit{i, c.users})
				text = text[:i] + strings.Repeat("\x00", len(c.word)) + text[from:]
			}
		}
	}
	slices.SortStableFunc(hits, func(a, b hit) int { return a.at - b.at })
	var users []string
	for _, h := range hits {
		users = append(users, h.users...)
	}
	return users
}

// ends says that a word ends where the rest of the text begins, or, before it, begins where the text ends. A hyphen, underscore, dot or @
// between it and another word makes both one word, as on is a part of on-call and ana of ana@example.com.
func ends(rest string, behind bool) bool {
	var r, far rune
	var size int
	if behind {
		r, size = utf8.DecodeRuneInString(rest)
		far, _ = utf8.DecodeRuneInString(rest[size:])
	} else {
		r, size = utf8.DecodeLastRuneInString(rest)
		far, _ = utf8.DecodeLastRuneInString(rest[:len(rest)-size])
	}
	part := func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }
	switch {
	case size == 0:
		return true
	case strings.ContainsRune("-_.@", r):
		return !part(far)
	}
	return !part(r)
}
