// Package extract takes values out of what a source sends, by expressions of the file. An expression is compiled once, when
// the file is read, and evaluated within bounds: it can't loop over a list within a list, call out, or read a clock.
package extract

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/types"
	"github.com/expr-lang/expr/vm"
)

// The names that expressions may use. Which of them there are depends on where the expression stands.
const (
	Labels      = "labels"
	Annotations = "annotations"
	Alert       = "alert" // one alert as it was sent
	Body        = "body"  // the whole message as it was sent
)

// Input is what an expression is evaluated on, by name.
type Input map[string]any

// maxNodes bounds an expression: what a person writes is far smaller.
const maxNodes = 500

// Expression is a compiled expression. The zero value gives nothing.
type Expression struct {
	text    string
	program *vm.Program
}

// Given says that there is an expression.
func (e Expression) Given() bool { return e.program != nil }

// String is the expression as it was written.
func (e Expression) String() string { return e.text }

// Compile compiles an expression that may use the names.
func Compile(text string, names ...string) (Expression, error) {
	env := types.Map{}
	for _, n := range names {
		env[n] = types.Any
	}
	p, err := expr.Compile(text, expr.Env(env), expr.MaxNodes(maxNodes),
		// The same message must give the same alert whenever it is read, and no small message a large one.
		expr.DisableBuiltin("now"), expr.DisableBuiltin("repeat"), expr.DisableBuiltin("replace"), expr.DisableBuiltin("get"))
	if err != nil {
		return Expression{}, spoken(err)
	}
	nested := &nesting{}
	root := p.Node()
	ast.Walk(&root, nested)
	if nested.grows {
		return Expression{}, errors.New("reduce is not possible: what it gathers could grow without bound")
	}
	if nested.found {
		return Expression{}, errors.New("a loop within a loop is not possible: it could take too long")
	}
	return Expression{text: text, program: p}, nil
}

// spoken is a compiler's error on one line, without the drawing below it.
func spoken(err error) error {
	var at *file.Error
	if errors.As(err, &at) {
		return fmt.Errorf("%s, at character %d", at.Message, at.Column+1)
	}
	line, _, _ := strings.Cut(err.Error(), "\n")
	return errors.New(line)
}

// nesting looks for loops within loops, and for those that gather a text of any length.
type nesting struct{ found, grows bool }

func (n *nesting) Visit(node *ast.Node) {
	if b, ok := (*node).(*ast.BuiltinNode); ok {
		n.grows = n.grows || b.Name == "reduce"
	}
	p, ok := (*node).(*ast.PredicateNode)
	if !ok {
		return
	}
	inner := &counting{}
	ast.Walk(&p.Node, inner)
	n.found = n.found || inner.loops > 0
}

type counting struct{ loops int }

func (c *counting) Visit(node *ast.Node) {
	if _, ok := (*node).(*ast.PredicateNode); ok {
		c.loops++
	}
}

// Value evaluates the expression. Nil: it gives nothing.
func (e Expression) Value(in Input) (any, error) {
	if e.program == nil {
		return nil, nil
	}
	v, err := vm.Run(e.program, map[string]any(in))
	if err != nil {
		return nil, spoken(err)
	}
	return v, nil
}

// Text evaluates the expression to a text; empty: it gives nothing.
func (e Expression) Text(in Input) (string, error) {
	v, err := e.Value(in)
	if err != nil {
		return "", err
	}
	return Text(v)
}

// Template is a text of the file in which {expression} stands for what the expression gives. The zero value gives "".
type Template struct {
	text  string
	parts []part
}

type part struct {
	text       string
	expression Expression
}

// Given says that there is a template.
func (t Template) Given() bool { return len(t.parts) > 0 }

// String is the template as it was written.
func (t Template) String() string { return t.text }

// ParseTemplate compiles a template whose expressions may use the names.
func ParseTemplate(text string, names ...string) (Template, error) {
	t := Template{text: text}
	rest, at := text, 0
	for rest != "" {
		open := strings.IndexAny(rest, "{}")
		if open < 0 {
			t.parts = append(t.parts, part{text: rest})
			break
		}
		if rest[open] == '}' {
			return Template{}, fmt.Errorf("a } without its {, at character %d", at+open+1)
		}
		if open > 0 {
			t.parts = append(t.parts, part{text: rest[:open]})
		}
		inner, ok := braced(rest[open:])
		if !ok {
			return Template{}, fmt.Errorf("a { without its }, at character %d", at+open+1)
		}
		e, err := Compile(inner, names...)
		if err != nil {
			return Template{}, fmt.Errorf("{%s}: %w", inner, err)
		}
		t.parts = append(t.parts, part{expression: e})
		taken := open + len(inner) + 2
		rest, at = rest[taken:], at+taken
	}
	return t, nil
}

// braced is what stands in the braces that s begins with. Braces in quotes and pairs of them do not end it.
func braced(s string) (string, bool) {
	depth := 0
	var quote byte
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case quote != 0 && c == '\\' && quote != '`':
			i++
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'' || c == '`':
			quote = c
		case c == '{':
			depth++
		case c == '}':
			if depth--; depth == 0 {
				return s[1:i], true
			}
		}
	}
	return "", false
}

// Text fills the template in.
func (t Template) Text(in Input) (string, error) {
	var b strings.Builder
	for _, p := range t.parts {
		b.WriteString(p.text)
		s, err := p.expression.Text(in)
		if err != nil {
			return "", fmt.Errorf("{%s}: %w", p.expression, err)
		}
		b.WriteString(s)
	}
	return b.String(), nil
}

// Decode reads a JSON document. Whole numbers stay whole: an id of 19 digits must come out as it went in.
func Decode(text []byte) (any, error) {
	var whole json.RawMessage
	if err := json.Unmarshal(text, &whole); err != nil { // a decoder would take the first of several documents
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(whole))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	return plain(v), nil
}

// plain replaces JSON's numbers by ones that expressions reckon with.
func plain(v any) any {
	switch t := v.(type) {
	case json.Number:
		if n, err := strconv.Atoi(t.String()); err == nil {
			return n
		}
		if f, err := t.Float64(); err == nil && strings.ContainsAny(t.String(), ".eE") {
			return f
		}
		return t.String() // larger than any number here: as text it is at least the same
	case map[string]any:
		for k := range t {
			t[k] = plain(t[k])
		}
	case []any:
		for i := range t {
			t[i] = plain(t[i])
		}
	}
	return v
}

// Text writes a value as text. Nothing is the empty text; a list or a mapping is none.
func Text(v any) (string, error) {
	switch t := v.(type) {
	case nil:
		return "", nil
	case string:
		return t, nil
	case bool:
		return strconv.FormatBool(t), nil
	case int:
		return strconv.Itoa(t), nil
	case int64:
		return strconv.FormatInt(t, 10), nil
	case float64:
		return strconv.FormatFloat(t, 'f', -1, 64), nil
	case time.Time:
		return t.Format(time.RFC3339Nano), nil
	case map[string]any:
		return "", errors.New("it gives a mapping, a text is needed")
	case []any:
		return "", errors.New("it gives a list, a text is needed")
	}
	return "", fmt.Errorf("it gives a %T, a text is needed", v)
}

// Instant reads a point in time: RFC 3339, or seconds or milliseconds since 1970. Zero: there is none.
func Instant(v any) (time.Time, error) {
	switch t := v.(type) {
	case nil:
		return time.Time{}, nil
	case time.Time:
		return t, nil
	case int:
		return since1970(float64(t)), nil
	case float64:
		return since1970(t), nil
	case string:
		if t == "" {
			return time.Time{}, nil
		}
		if at, err := time.Parse(time.RFC3339, t); err == nil {
			return at, nil
		}
		if n, err := strconv.ParseFloat(t, 64); err == nil {
			return since1970(n), nil
		}
		return time.Time{}, errors.New("it is no instant: RFC 3339 such as 2026-01-05T09:00:00Z, or seconds or milliseconds since 1970")
	}
	return time.Time{}, errors.New("it is no instant")
}

// since1970 takes what would lie thousands of years ahead as seconds for milliseconds.
func since1970(n float64) time.Time {
	const firstMillisecond = 1e11
	if math.IsNaN(n) || math.Abs(n) > 1e15 {
		return time.Time{}
	}
	if math.Abs(n) >= firstMillisecond {
		n /= 1000
	}
	whole, part := math.Modf(n)
	return time.Unix(int64(whole), int64(part*1e9)).UTC()
}
