package generate

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/heftai/heft/api/wire"
	"github.com/heftai/heft/internal/grammar"
	"github.com/heftai/heft/internal/grammar/dfa"
	"github.com/heftai/heft/internal/grammar/jsonschema"
	"github.com/heftai/heft/internal/grammar/vocab"
	"github.com/heftai/heft/internal/layout"
	"github.com/heftai/heft/text"
)

// calls describes the tool calls that an answer must or may have.
type calls struct {
	field    string // name of the request's field, for errors
	notation text.CallNotation
	tools    []tool
	required bool
	single   bool // at most one call
}

// tool is a function that the model may call.
type tool struct {
	index  int // position among the conversation's tools
	name   string
	schema []byte   // of the arguments
	names  []string // parameters that the tool's schema lists; nil if it lists none
	custom *customTool
}

// forceCalls sets r.calls if the answer to c is constrained: if calls are required, if arguments
// are strict, or if calls are allowed in addition to constrained content. The grammar enforces a
// limit of one call and the text of custom tools if it knows the notation of calls. Otherwise the
// dialect drops further calls, and an [inputReader] accepts any arguments.
func (m *Model) forceCalls(c *Conversation, r *Request) error {
	tools := c.tools()
	if len(tools) == 0 {
		if c.ToolChoice == ToolsRequired {
			return wire.Invalidf("tool_choice", "Invalid value for 'tool_choice': 'tools' is empty or missing.")
		}
		return nil
	}
	calls := &calls{required: c.ToolChoice == ToolsRequired, single: c.SingleCall}
	strict := false
	for _, t := range tools {
		strict = strict || c.Strict[t.Name] || c.custom[t.Name].held
	}
	optional := false
	switch {
	case calls.required:
		calls.field = "tool_choice"
	case strict:
		calls.field = "tools"
	case r.Constraint != nil:
		calls.field = r.Constraint.name()
	case c.SingleCall:
		calls.field, optional = "parallel_tool_calls", true
	case len(c.custom) > 0:
		calls.field, optional = "tools", true
	default:
		return nil
	}
	var known bool
	if calls.notation, known = m.Chat.CallNotation(); !known {
		if optional {
			return nil
		}
		return wire.Invalidf(calls.field, "'%s' is not supported: the chat template of %s does not show how the model writes calls.", calls.field, m.Name)
	}
	for i, t := range tools {
		if c.Tool != "" && t.Name != c.Tool {
			continue
		}
		one := tool{index: i, name: t.Name, schema: []byte(`{}`), names: parameterNames(t.Parameters)}
		if custom, ok := c.custom[t.Name]; ok {
			one.schema, one.custom = custom.schema, &custom
		} else if (calls.required || c.Strict[t.Name]) && len(t.Parameters) > 0 {
			one.schema = t.Parameters
		} else if listedOnly(calls.notation.Arguments) {
			one.schema = anyOf(one.names)
		}
		calls.tools = append(calls.tools, one)
	}
	if len(calls.tools) == 0 {
		return wire.Invalidf("tool_choice", "Invalid value for 'tool_choice': 'tools' has no function %q.", c.Tool)
	}
	r.calls = calls
	return nil
}

// size returns the bytes that are compiled.
func (c *calls) size() int {
	if c == nil {
		return 0
	}
	n := 0
	for _, t := range c.tools {
		n += len(t.name) + len(t.schema)
		if t.custom != nil {
			n += len(t.custom.definition)
		}
	}
	return n
}

// write writes the fields that distinguish the grammars of calls.
func (c *calls) write(w io.Writer) {
	if c == nil {
		return
	}
	n := c.notation
	if n.Arguments != nil {
		fmt.Fprintf(w, "%+v ", *n.Arguments)
		n.Arguments = nil
	}
	fmt.Fprintf(w, "%t %t %q ", c.required, c.single, fmt.Sprint(n))
	for _, t := range c.tools {
		fmt.Fprintf(w, "%q %q ", t.name, t.schema)
		if t.custom != nil {
			fmt.Fprintf(w, "%q ", t.custom.definition)
		}
	}
}

// position returns a position that reads calls in the notation of the template.
func (c *calls) position(b *grammar.Builder, f *frame) (grammar.Pos, error) {
	n := &c.notation
	first, err := c.one(b, f, firstCall)
	if err != nil {
		return grammar.Fail, err
	}
	after := c.text(b, f, n.After, firstCall, grammar.Return)
	if n.Between != "" && !c.single {
		again := first
		if n.Index != "" {
			if again, err = c.one(b, f, laterCall); err != nil {
				return grammar.Fail, err
			}
		}
		after = b.Repeat(0, dfa.Unbounded, func(next grammar.Pos) grammar.Pos { return c.text(b, f, n.Between, laterCall, b.Call(again, next)) }, after)
	}
	return c.text(b, f, n.Before, firstCall, b.Call(first, after)), nil
}

// order is the place of a call in an answer.
type order bool

const (
	firstCall order = false
	laterCall order = true
)

// one returns the rule of one call without the text before and after it.
func (c *calls) one(b *grammar.Builder, f *frame, which order) (grammar.Rule, error) {
	rule := b.Rule()
	var alts []grammar.Pos
	for _, t := range c.tools {
		next := grammar.Return
		if c.notation.Again != "" {
			next = c.text(b, f, c.notation.Again, which, b.Literal(t.name, next))
		}
		if c.notation.Last {
			next = c.text(b, f, c.notation.Infix, which, b.Literal(t.name, next))
		}
		at, err := c.arguments(b, f, &t, next)
		if err != nil {
			refused := &Constraint{Field: fmt.Sprintf("tools[%d].function.parameters", t.index)}
			if err = refused.refusal(err); t.custom != nil {
				err = t.custom.refusal(err)
			}
			return rule, err
		}
		if !c.notation.Last {
			at = b.Literal(t.name, c.text(b, f, c.notation.Infix, which, at))
		}
		alts = append(alts, at)
	}
	b.Define(rule, b.Split(alts...))
	return rule, nil
}

// arguments returns a position that reads the arguments of a call, then next.
func (c *calls) arguments(b *grammar.Builder, f *frame, t *tool, next grammar.Pos) (grammar.Pos, error) {
	a := c.notation.Arguments
	switch {
	case t.custom != nil && t.custom.nested != nil && a == nil:
		return t.custom.arguments(b, next)
	case t.custom != nil && t.custom.nested != nil:
		return grammar.Fail, errNested
	case a == nil:
		return jsonschema.AppendObject(b, t.schema, next)
	case a.Kind == text.TextArguments:
		return b.Quoted(func() (grammar.Pos, error) { return jsonschema.AppendObject(b, t.schema, next) })
	}
	l := &jsonschema.Layout{Names: t.names, Object: layout.Object{
		Kind: layout.Kind(a.Kind), First: a.First, Next: a.Next, Empty: a.Empty, Equals: a.Equals, EqualsText: a.EqualsText,
		End: a.End, Stop: a.Stop, Quote: a.Quote, JSONText: a.JSONText, CDATA: a.CDATA, Flipped: a.Flipped, Plain: layout.Plain(a.Plain),
	}}
	l.Marker = func(marker string, next grammar.Pos) grammar.Pos {
		before, after, counted := strings.Cut(marker, text.CountMark)
		if !counted {
			return f.marker(b, marker, next)
		}
		return f.marker(b, before, b.Term(b.Library().Named("call number", callNumber), f.marker(b, after, next)))
	}
	l.Plain.Ends = slices.Clone(a.Plain.Ends)
	for i := range l.Plain.Ends {
		l.Plain.Ends[i] = strings.ReplaceAll(l.Plain.Ends[i], text.NameMark, t.name)
	}
	return jsonschema.AppendLaidOut(b, t.schema, l, next)
}

// text returns a position that reads a part of the notation.
func (c *calls) text(b *grammar.Builder, f *frame, part string, which order, next grammar.Pos) grammar.Pos {
	place, named, made := c.notation.ID, "call id", callID
	if c.notation.Index != "" {
		if place = c.notation.Index; which == firstCall {
			part, place = strings.ReplaceAll(part, place, "0"), ""
		}
		named, made = "call number", callNumber
	}
	if place == "" {
		return f.marker(b, part, next)
	}
	pieces := strings.Split(part, place)
	for i := len(pieces) - 1; i >= 0; i-- {
		next = f.marker(b, pieces[i], next)
		if i > 0 {
			next = b.Term(b.Library().Named(named, made), next)
		}
	}
	return next
}

// callNumber returns the number of a call that is not the first.
func callNumber() *dfa.Expr {
	return dfa.Concat(dfa.Byte('1', '9'), dfa.Repeat(dfa.Byte('0', '9'), 0, 2))
}

// callID returns the id of a call.
func callID() *dfa.Expr {
	return dfa.Repeat(dfa.Alt(dfa.Byte('0', '9'), dfa.Byte('A', 'Z'), dfa.Byte('a', 'z')), 9, 9)
}

// shortMarker is the minimum length of a start of calls that distinguishes it from text.
const shortMarker = 4

// marker returns the start of calls if text cannot contain it, or "" if calls may start like text.
func (c *calls) marker(f *frame) string {
	first := f.names(c.notation.Before)
	if len(first) == 0 {
		return ""
	}
	if vocab.IsSpecial([]byte(first[0])) {
		return first[0]
	}
	begin := first[0]
	if i := strings.IndexAny(begin, "{\n\""); i >= 0 {
		begin = begin[:i]
	}
	if begin = strings.TrimSpace(begin); len(begin) < shortMarker {
		return ""
	}
	return begin
}

// among returns a position that reads either free text, optionally followed by calls, or calls
// alone.
func (c *calls) among(b *grammar.Builder, f *frame, called grammar.Pos) (content, calls grammar.Pos) {
	marker := c.marker(f)
	before := strings.Join(f.names(c.notation.Before), "")
	if marker == "" { // calls are whole messages, and text does not start like them
		d, err := textNotBeginning(c.beginnings(before), b.Budget)
		if err != nil {
			return grammar.Fail, called
		}
		return b.Term(b.Terminal(d), grammar.Return), called
	}
	without, err := textWithout(marker, b.Budget)
	if err != nil {
		return grammar.Fail, called
	}
	text := b.Term(b.Terminal(without), grammar.Return)
	if f.Final != "" { // calls are separate messages
		return text, called
	}
	until, err := untilText(marker, b.Budget)
	if err != nil {
		return grammar.Fail, called
	}
	rest, err := c.rest(b, f, strings.TrimPrefix(before, marker))
	if err != nil {
		return grammar.Fail, called
	}
	return b.Split(text, b.Term(b.Terminal(until), rest)), grammar.Fail
}

// beginnings returns strings that calls start with and text does not: the first byte of the text
// before the calls, or the tools' names.
func (c *calls) beginnings(before string) []string {
	if before != "" {
		return []string{before[:1]}
	}
	if c.notation.Last {
		return []string{"{"}
	}
	var list []string
	for _, t := range c.tools {
		list = append(list, t.name)
	}
	return list
}

// rest returns a position that reads calls after the marker that starts them.
func (c *calls) rest(b *grammar.Builder, f *frame, before string) (grammar.Pos, error) {
	behind := *c
	behind.notation.Before = ""
	at, err := behind.position(b, f)
	if err != nil {
		return grammar.Fail, err
	}
	return b.Literal(before, at), nil
}
