package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode"

	"golang.org/x/term"
	"golang.org/x/text/width"
)

// printJSON writes v as one indented document.
func (p *program) printJSON(v any) error {
	e := json.NewEncoder(p.out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// cell is a text in a table with its colour; 0 is none.
type cell struct {
	text   string
	colour int
}

// ANSI colours.
const (
	red    = 31
	green  = 32
	yellow = 33
	blue   = 34
	bold   = 1
)

// stateColours is the colour of each state of incidents, deliveries and outcomes of attempts. A person's word and the
// provider's differ here as everywhere.
var stateColours = map[string]int{
	"open": red, "acknowledged": yellow, "resolved": green, "firing": red,
	"pending": yellow, "sent": green, "assumed": blue,
	"rejected": red, "unreachable": red, "held": red, "exhausted": red, "expired": red,
	"failed": red, "unknown": yellow,
}

func state(s string) cell { return cell{text: s, colour: stateColours[s]} }

// table prints rows under a heading, columns aligned by what a terminal shows.
func (p *program) table(head []string, rows [][]cell) {
	colours := p.colours()
	all := make([][]cell, 0, len(rows)+1)
	if len(head) > 0 {
		h := make([]cell, len(head))
		for i, t := range head {
			h[i] = cell{text: t, colour: bold}
		}
		all = append(all, h)
	}
	widths := map[int]int{}
	for _, row := range rows {
		clean := make([]cell, len(row))
		for i, c := range row {
			clean[i] = cell{text: printable(c.text), colour: c.colour}
			if c.text == "" {
				clean[i].text = "-"
			}
		}
		all = append(all, clean)
	}
	for _, row := range all {
		for i, c := range row {
			widths[i] = max(widths[i], columns(c.text))
		}
	}
	var b strings.Builder
	for _, row := range all {
		for i, c := range row {
			if colours && c.colour != 0 {
				fmt.Fprintf(&b, "\x1b[%dm%s\x1b[0m", c.colour, c.text)
			} else {
				b.WriteString(c.text)
			}
			if i < len(row)-1 {
				b.WriteString(strings.Repeat(" ", widths[i]-columns(c.text)+2))
			}
		}
		b.WriteString("\n")
	}
	_, _ = io.WriteString(p.out, b.String())
}

// facts prints name and value pairs; those without a value are left out.
func (p *program) facts(pairs ...cell) {
	var rows [][]cell
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1].text != "" {
			name := pairs[i].text
			if name == "" {
				name = " " // it goes on from the line above; a table shows nothing as a dash
			}
			rows = append(rows, []cell{{text: name, colour: bold}, pairs[i+1]})
		}
	}
	p.table(nil, rows)
}

func plain(s string) cell { return cell{text: s} }

// colours says that the output is a terminal whose user did not ask for plain text (https://no-color.org).
func (p *program) colours() bool {
	if v, ok := p.env("NO_COLOR"); ok && v != "" {
		return false
	}
	if v, _ := p.env("TERM"); v == "dumb" {
		return false
	}
	f, ok := p.out.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// printable takes control characters out of text that came from outside: an alert's title must not steer the
// operator's terminal. Line breaks stay.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || unicode.IsPrint(r) {
			return r
		}
		if unicode.IsSpace(r) {
			return ' '
		}
		return '\uFFFD'
	}, s)
}

// oneLine is the first n columns of a text, on one line.
func oneLine(s string, n int) string {
	s = strings.Join(strings.Fields(printable(s)), " ")
	if columns(s) <= n {
		return s
	}
	var b strings.Builder
	used := 0
	for _, r := range s {
		w := columns(string(r))
		if used+w > n-1 {
			break
		}
		used += w
		b.WriteRune(r)
	}
	return b.String() + "…"
}

// columns is how many columns a terminal needs for s.
func columns(s string) int {
	n := 0
	for _, r := range s {
		switch {
		case unicode.Is(unicode.Mn, r) || unicode.Is(unicode.Cf, r):
		case width.LookupRune(r).Kind() == width.EastAsianWide || width.LookupRune(r).Kind() == width.EastAsianFullwidth:
			n += 2
		default:
			n++
		}
	}
	return n
}

// when is an instant in the operator's own zone.
func when(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05") }

func whenever(t *time.Time) string {
	if t == nil {
		return ""
	}
	return when(*t)
}
