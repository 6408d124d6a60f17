package config

import (
	"bytes"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Bounds on a file. The YAML parser takes time that grows with the square of the number of keys in one mapping and of
// the depth; a file that people write is far below all of them, and one above is refused in a moment.
const (
	MaxSize   = 1 << 20 // bytes
	maxTokens = 100_000
	maxDepth  = 64 // brackets
	maxRun    = 32 // marks on one line without a comma between: `- - - x`, `!a !b x`
)

// document parses text into the root of its one document; nil for a file without content. The problems are those that
// leave nothing to check any further.
func document(name string, text []byte) (root ast.Node, problems Errors) {
	fail := func(line, column int, message, hint string) (ast.Node, Errors) {
		return nil, Errors{{File: name, Line: line, Column: column, Message: message, Hint: hint}}
	}
	if len(text) > MaxSize {
		return fail(0, 0, fmt.Sprintf("the file has %d bytes, at most %d are read", len(text), MaxSize), "")
	}
	// The parser takes a byte order mark for a part of the first key, and counts lines that end as on Windows wrongly.
	text = bytes.TrimPrefix(text, []byte("\uFEFF"))
	text = bytes.ReplaceAll(bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n")), []byte("\r"), []byte("\n"))
	line, column := 1, 1
	for rest := text; len(rest) > 0; {
		r, n := utf8.DecodeRune(rest)
		switch {
		case r == utf8.RuneError && n == 1:
			return fail(line, column, "the file is not valid UTF-8", "save it as UTF-8")
		case r < ' ' && r != '\n' && r != '\t' || r == 0x7f:
			return fail(line, column, fmt.Sprintf("the file holds the control character %U", r), "remove it")
		case r == '\n':
			line, column = line+1, 0
		}
		column++
		rest = rest[n:]
	}
	// The parser has had panics on broken input; the operator gets an error, and a running replica keeps its old file.
	defer func() {
		if p := recover(); p != nil {
			root, problems = fail(0, 0, fmt.Sprintf("the YAML cannot be read: %v", p), "")
		}
	}()
	tokens := lexer.Tokenize(string(text))
	if at, message := tooMuch(tokens); at != nil {
		return fail(at.Position.Line, at.Position.Column, message, "")
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		var syntax yaml.Error
		if errors.As(err, &syntax) && syntax.GetToken() != nil && syntax.GetToken().Position != nil {
			p := syntax.GetToken().Position
			if tabbed(text, p.Line) {
				return fail(p.Line, 1, "YAML: the line is indented with a tab", "indent with spaces; nothing after a YAML mistake can be checked")
			}
			return fail(p.Line, p.Column, "YAML: "+syntax.GetMessage(), "nothing after a YAML mistake can be checked; mend it first")
		}
		return fail(0, 0, "YAML: "+err.Error(), "")
	}
	for _, doc := range file.Docs {
		switch doc.Body.(type) {
		case nil, *ast.CommentGroupNode, *ast.DirectiveNode:
			continue
		}
		if root != nil {
			line, column := position(doc.Body)
			return fail(line, column, "the file holds a second YAML document", "one file, one document: remove the line ---")
		}
		root = doc.Body
	}
	return root, nil
}

// tabbed says that a line is indented with a tab, of which the parser says nothing that helps.
func tabbed(text []byte, line int) bool {
	for n, l := range bytes.Split(text, []byte("\n")) {
		if n+1 == line {
			indent := l[:len(l)-len(bytes.TrimLeft(l, " \t"))]
			return bytes.IndexByte(indent, '\t') >= 0
		}
	}
	return false
}

// tooMuch finds the token at which the text goes beyond what is read.
func tooMuch(tokens token.Tokens) (*token.Token, string) {
	depth, run, line := 0, 0, 0
	for i, t := range tokens {
		if t.Position == nil {
			continue
		}
		if t.Position.Line != line {
			line, run = t.Position.Line, 0
		}
		switch t.Type {
		case token.SequenceStartType, token.MappingStartType:
			depth++
		case token.SequenceEndType, token.MappingEndType:
			depth = max(depth-1, 0)
		case token.CollectEntryType:
			run = 0
		case token.SequenceEntryType, token.MappingKeyType, token.MappingValueType, token.AnchorType, token.AliasType, token.TagType:
			run++
		}
		switch {
		case i >= maxTokens:
			return t, "the file is too long from here on"
		case depth > maxDepth:
			return t, fmt.Sprintf("more than %d brackets are open", maxDepth)
		case run > maxRun:
			return t, "too many marks stand on one line"
		}
	}
	return nil, ""
}

// position is where a node begins. A mapping in block style begins at its first key, which its own token does not say.
func position(n ast.Node) (line, column int) {
	switch v := n.(type) {
	case *ast.MappingNode:
		if !v.IsFlowStyle && len(v.Values) > 0 {
			return position(v.Values[0])
		}
	case *ast.MappingValueNode:
		return position(v.Key)
	}
	if t := n.GetToken(); t != nil && t.Position != nil {
		return t.Position.Line, t.Position.Column
	}
	return 1, 1
}
