package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// maxNodes bounds how many nodes are read, each time an alias is followed counted anew: aliases of aliases can make a
// small file endless.
const maxNodes = 200_000

// maxProblems bounds what is noted of one file; whoever has more sees them after mending these.
const maxProblems = 500

// reader walks the tree of one file. It never stops at a mistake: it notes it, with its place, and goes on, so that the
// operator learns of all of them at once.
type reader struct {
	file     string
	env      func(string) (string, bool)
	problems Errors
	used     map[string]string // NAME -> value of each ${NAME} that was filled in
	anchors  map[string]ast.Node
	nodes    int
	refs     []ref
	defined  map[string][]string    // what names exist: "user", "schedule", "notifier", "escalation"
	asking   func(path, key string) // told of each key that the loader asks for and acts on; may be nil
}

// ref is a name that one part of the file uses and another must define.
type ref struct {
	at   value
	kind string
	name string
}

// value is a node with its path. A value that is absent has no node.
type value struct {
	r    *reader
	node ast.Node // resolved: no anchor, alias or allowed tag
	at   ast.Node // where it stands
	path string
}

// newReader prepares to read the tree under root.
func newReader(file string, root ast.Node, env func(string) (string, bool)) *reader {
	r := &reader{file: file, env: env, used: map[string]string{}, anchors: map[string]ast.Node{}, defined: map[string][]string{}}
	for _, n := range ast.Filter(ast.AnchorType, root) {
		if a, ok := n.(*ast.AnchorNode); ok && a.Name != nil && a.Name.GetToken() != nil {
			if name := a.Name.GetToken().Value; r.anchors[name] == nil {
				r.anchors[name] = a.Value
			}
		}
	}
	return r
}

// problem notes a mistake at v.
func (v value) problem(hint, format string, args ...any) {
	if len(v.r.problems) >= maxProblems {
		return
	}
	p := Problem{File: v.r.file, Path: v.path, Message: fmt.Sprintf(format, args...), Hint: hint}
	if v.at != nil {
		p.Line, p.Column = position(v.at)
	}
	v.r.problems = append(v.r.problems, p)
}

// present says that the file has a value here.
func (v value) present() bool { return v.node != nil }

// null says that the key stands there without a value.
func (v value) null() bool { return v.node != nil && v.node.Type() == ast.NullType }

// refer notes that v names something of the given kind.
func (v value) refer(kind, name string) {
	v.r.refs = append(v.r.refs, ref{at: v, kind: kind, name: name})
}

// child makes the value for a node below v, following anchors and aliases. A broken one is noted and is absent.
func (r *reader) child(n ast.Node, path string) value {
	v := value{r: r, at: n, path: path}
	for hops := 0; ; hops++ {
		if r.nodes++; r.nodes > maxNodes {
			if r.nodes == maxNodes+1 {
				v.problem("write the values out instead of nesting aliases", "the aliases in the file make it endless")
			}
			return v
		}
		if hops > maxDepth {
			v.problem("write the value out", "the alias leads back to itself")
			return v
		}
		switch t := n.(type) {
		case *ast.AnchorNode:
			n = t.Value
		case *ast.AliasNode:
			name := ""
			if t.Value != nil && t.Value.GetToken() != nil {
				name = t.Value.GetToken().Value
			}
			target, ok := r.anchors[name]
			if !ok {
				v.problem(suggest(name, keys(r.anchors)), "no anchor &%s is in the file", name)
				return v
			}
			n = target
		case nil:
			return v
		default:
			v.node = n
			return v
		}
	}
}

// kindOf names what a node is, as people would.
func kindOf(n ast.Node) string {
	switch n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	case *ast.NullNode:
		return "nothing"
	case *ast.TagNode:
		return "a YAML tag"
	case *ast.BoolNode:
		return "true or false"
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		return "a number"
	}
	return "a text"
}

// object is a mapping that is being read. Keys that nobody asked for are mistakes: see done.
type object struct {
	value
	keys   []string
	values map[string]value
	places map[string]ast.Node // where each key stands
	asked  []string
	later  []string // keys asked for only to be refused: hints do not offer them
}

// object reads v as a mapping. Nil where v is absent, null or something else; a nil *object has no keys.
func (v value) object() *object {
	if !v.present() || v.null() {
		return nil
	}
	o := &object{value: v, values: map[string]value{}, places: map[string]ast.Node{}}
	if !o.merge(v.node, 0) {
		return nil
	}
	return o
}

// merge takes the entries of a mapping into o. Entries of a `<<` give way to those that stand there themselves.
func (o *object) merge(n ast.Node, depth int) bool {
	var entries []*ast.MappingValueNode
	switch t := n.(type) {
	case *ast.MappingNode:
		entries = t.Values
	case *ast.MappingValueNode:
		entries = []*ast.MappingValueNode{t}
	default:
		o.problem("", "%s must be a mapping (key: value), it is %s", o.name(), kindOf(n))
		return false
	}
	var merges []ast.Node
	for _, e := range entries {
		if e.Key.IsMergeKey() {
			merges = append(merges, e.Value)
			continue
		}
		key := keyText(e.Key)
		if first, double := o.places[key]; double {
			if depth == 0 {
				line, _ := position(first)
				value{r: o.r, at: e.Key, path: o.join(key)}.problem("keep one of the two", "the key %q is there twice, first in line %d", key, line)
			}
			continue
		}
		o.keys = append(o.keys, key)
		o.places[key] = e.Key
		child := o.r.child(e.Value, o.join(key))
		if child.null() {
			child.at = e.Key
		}
		o.values[key] = child
	}
	for _, m := range merges {
		v := o.r.child(m, o.path)
		list := []value{v}
		if s, ok := v.node.(*ast.SequenceNode); ok {
			list = nil
			for _, n := range s.Values {
				list = append(list, o.r.child(n, o.path))
			}
		}
		for _, v := range list {
			if !v.present() {
				continue
			}
			if depth > maxDepth {
				v.problem("write the values out", "<< is nested too deeply")
				return true
			}
			if k := kindOf(v.node); k != "a mapping" {
				v.problem("", "<< must name a mapping, it names %s", k)
				continue
			}
			o.merge(v.node, depth+1)
		}
	}
	return true
}

// keyText is a key as it is written, quotes removed.
func keyText(n ast.Node) string {
	if long, ok := n.(*ast.MappingKeyNode); ok && long.Value != nil { // ? key
		n = long.Value
	}
	if t := n.GetToken(); t != nil {
		return t.Value
	}
	return ""
}

// name is what messages call the value: its key.
func (v value) name() string {
	if v.path == "" {
		return "the file"
	}
	return v.path[strings.LastIndexByte(v.path, '.')+1:]
}

// join is the path of a key below v.
func (v value) join(key string) string {
	if v.path == "" {
		return key
	}
	return v.path + "." + key
}

// get is the value of a key, which becomes a known key by it. An absent one is noted where the mapping stands.
func (o *object) get(key string) value {
	if o == nil {
		return value{}
	}
	o.asked = append(o.asked, key)
	if o.r.asking != nil && !slices.Contains(o.later, key) {
		o.r.asking(o.path, key)
	}
	if v, ok := o.values[key]; ok {
		return v
	}
	return value{r: o.r, at: o.at, path: o.join(key)}
}

// has says that the key stands in the mapping, whatever its value.
func (o *object) has(key string) bool {
	if o == nil {
		return false
	}
	_, ok := o.values[key]
	return ok
}

// require notes the key's absence. Why says what it is for.
func (o *object) require(key, why string) {
	if o != nil && !o.has(key) {
		o.problem(why, "%s has no %s", o.title(), key)
	}
}

// title is what messages call an object that lacks something.
func (o *object) title() string {
	if o.path == "" {
		return "the file"
	}
	return o.path
}

// unsupported refuses a key that the contract knows and this version does not act on: a setting that seems to work and
// does nothing is worse than none.
func (o *object) unsupported(names ...string) {
	for _, key := range names {
		if o == nil {
			return
		}
		o.later = append(o.later, key)
		if v := o.get(key); o.has(key) {
			v.at = o.places[key]
			v.problem("remove it", "%s is not supported by this version", key)
		}
	}
}

// done notes each key that nobody asked for. Elsewhere tells of keys that belong to another place.
func (o *object) done(elsewhere map[string]string) {
	if o == nil {
		return
	}
	for _, key := range o.keys {
		if slices.Contains(o.asked, key) || o.path == "" && strings.HasPrefix(key, "x-") {
			continue // x-...: a place for anchors
		}
		hint := elsewhere[key]
		if hint == "" {
			known := slices.DeleteFunc(slices.Clone(o.asked), func(k string) bool { return slices.Contains(o.later, k) })
			slices.Sort(known)
			if hint = suggest(key, known); hint == "" {
				hint = "known here: " + strings.Join(slices.Compact(known), ", ")
			}
		}
		value{r: o.r, at: o.places[key], path: o.join(key)}.problem(hint, "unknown key %q", key)
	}
}

// list reads v as a list. Nil where v is absent, null or something else.
func (v value) list() []value {
	if !v.present() || v.null() {
		return nil
	}
	s, ok := v.node.(*ast.SequenceNode)
	if !ok {
		v.problem("write ["+"...]", "%s must be a list, it is %s", v.name(), kindOf(v.node))
		return nil
	}
	var all []value
	for i, n := range s.Values {
		c := v.r.child(n, v.path+"["+strconv.Itoa(i)+"]")
		if c.present() {
			all = append(all, c)
		}
	}
	return all
}
