package generate

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/heftai/heft/api/wire"
	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/grammar"
	"github.com/heftai/heft/internal/grammar/dfa"
	"github.com/heftai/heft/internal/grammar/gbnf"
	"github.com/heftai/heft/internal/grammar/jsonschema"
	"github.com/heftai/heft/internal/grammar/lark"
	"github.com/heftai/heft/internal/grammar/regex"
)

// A Constraint restricts the content of an answer. Exactly one of its fields other than Field is
// set.
type Constraint struct {
	Field  string          // name for errors; "" means "constraint"
	Object bool            // any JSON object
	Schema json.RawMessage // a JSON document that satisfies this schema
	Regex  string          // a text that the expression matches as a whole
	Choice []string        // one of these texts
	GBNF   string          // a text that matches this grammar, in llama.cpp's notation
	Lark   string          // a text that matches the rule start of this grammar, in Lark's notation
}

// constraint is a compiled Constraint.
type constraint struct {
	grammar *grammar.Grammar
	stop    []int32
}

// compileBytes is the memory that compiling takes in addition to the schema, until it is done.
const compileBytes = 1 << 20

// Constrain compiles r.Constraint if there is one. A caller may call it before Start to get its
// errors early; otherwise Start compiles. r.Parse must be set before. Memory for the grammar and
// its states is reserved in the claim of ctx. Errors are of type *wire.Error.
func (m *Model) Constrain(ctx context.Context, r *Request) error {
	if r.Constraint == nil && r.calls == nil {
		return nil
	}
	if err := r.Constraint.check(); err != nil {
		return err
	}
	field := r.constrainedBy()
	if m.Tokenizer == nil {
		return wire.Invalidf(field, "The model %s has no tokenizer: '%s' is not supported.", m.Name, field)
	}
	stop := m.EOS()
	if !r.IgnoreEOS {
		stop = slices.Concat(r.Params.Stop, stop)
	}
	if len(stop) == 0 {
		return wire.Invalidf(field, "The model %s names no token that ends a text: '%s' is not supported.", m.Name, field)
	}
	claim := wire.ClaimOf(ctx)
	if err := claim.Work(compileBytes + 64*(r.Constraint.size()+r.calls.size())); err != nil {
		return err
	}
	g, err := m.grammars().get(ctx, m, r)
	if claim != nil {
		m.grammars().count(claim)
	}
	if err != nil {
		return err
	}
	r.compiled = &constraint{grammar: g, stop: stop}
	return claim.Keep(g.MaxBytes() + max(r.N, 1)*g.MatcherBytes())
}

// constraints returns a function that makes the engine's constraint of each choice, or nil if there
// is no constraint.
func (m *Model) constraints(r *Request) func(choice int) engine.Constraint {
	c := r.compiled
	frame, limited := m.reasoningFrame(r)
	if c == nil && (!limited || m.budgeted(r, frame, nil) == nil) {
		return nil
	}
	return func(int) engine.Constraint {
		if c == nil {
			return m.budgeted(r, frame, nil)
		}
		content := c.grammar.NewMatcher(c.stop)
		if r.Continues {
			content.Continues()
		}
		if r.forbids() {
			content.AnyTokens()
		}
		if !limited {
			return content
		}
		return m.budgeted(r, frame, content)
	}
}

// forbids reports whether r's parameters may forbid individual tokens.
func (r *Request) forbids() bool {
	p := r.Params.internal()
	return len(p.Allow)+len(p.Suppress)+len(p.BadWords)+len(p.Bias) > 0 || p.NoRepeatNGram > 0
}

// constrainedBy returns the name of the request's field that sets the constraint.
func (r *Request) constrainedBy() string {
	if r.Constraint != nil {
		return r.Constraint.name()
	}
	return r.calls.field
}

// name returns the name of c for errors.
func (c *Constraint) name() string { return cmp.Or(c.Field, "constraint") }

// size returns the bytes that are compiled.
func (c *Constraint) size() int {
	if c == nil {
		return 0
	}
	n := len(c.Schema) + len(c.GBNF) + len(c.Lark) + len(c.Regex)
	for _, text := range c.Choice {
		n += len(text)
	}
	return n
}

// key returns a hash that identifies the grammar.
func (r *Request) key(f *frame) [sha256.Size]byte {
	h := sha256.New()
	if c := r.Constraint; c != nil {
		fmt.Fprintf(h, "%t %q %q %q %q %q ", c.Object, c.Schema, c.Regex, c.Choice, c.GBNF, c.Lark)
	}
	r.calls.write(h)
	fmt.Fprintf(h, "%q", f)
	return [sha256.Size]byte(h.Sum(nil))
}

// compile compiles the grammar of the answer to r with b.
func (m *Model) compile(b *grammar.Builder, r *Request, f *frame) (*grammar.Grammar, error) {
	content, called := grammar.Fail, grammar.Fail
	var err error
	if r.Constraint != nil {
		if content, err = r.Constraint.position(b); err != nil {
			return nil, r.Constraint.refusal(err)
		}
	}
	if r.calls != nil {
		if called, err = r.calls.position(b, f); err != nil {
			return nil, err
		}
		switch {
		case r.calls.required:
			content = grammar.Fail
		case r.Constraint == nil:
			content, called = r.calls.among(b, f, called)
		}
	}
	g, err := b.Grammar(f.around(b, content, called))
	if err != nil {
		c := &Constraint{Field: r.constrainedBy()}
		return nil, c.refusal(err)
	}
	return g, nil
}

// check returns an error unless exactly one field of c is set.
func (c *Constraint) check() error {
	if c == nil {
		return nil
	}
	n := 0
	for _, set := range []bool{c.Object, c.Schema != nil, c.Regex != "", len(c.Choice) > 0, c.GBNF != "", c.Lark != ""} {
		if set {
			n++
		}
	}
	if n != 1 {
		return wire.Invalidf(c.name(), "'%s' has %d of an object, a schema, a regular expression, choices and a grammar, want one.", c.name(), n)
	}
	return nil
}

// position adds the grammar of the content to b.
func (c *Constraint) position(b *grammar.Builder) (grammar.Pos, error) {
	switch {
	case c.Object:
		return jsonschema.Append(b, []byte(`{"type":"object"}`), grammar.Return)
	case c.Schema != nil:
		return jsonschema.Append(b, c.Schema, grammar.Return)
	case c.GBNF != "":
		return gbnf.Append(b, c.GBNF, grammar.Return)
	case c.Lark != "":
		return lark.Append(b, c.Lark, grammar.Return)
	case len(c.Choice) > 0:
		alts := make([]*dfa.Expr, len(c.Choice))
		for i, text := range c.Choice {
			alts[i] = dfa.Literal(text)
		}
		d, err := dfa.Compile(dfa.Alt(alts...), b.Budget)
		if err != nil {
			return grammar.Fail, err
		}
		return b.Term(b.Terminal(d), grammar.Return), nil
	}
	return matching(b, c.Regex)
}

// matching returns a position that reads the texts of a regular expression.
func matching(b *grammar.Builder, src string) (grammar.Pos, error) {
	if open, least, most, ok := regex.Uncount(src, true); ok {
		d, err := regex.Text(open, b.Budget)
		if err != nil {
			return grammar.Fail, err
		}
		if counted, ok := b.Terminal(d).CountedText(least, most); ok {
			return b.Term(counted, grammar.Return), nil
		}
	}
	d, err := regex.Cheap(b.Budget, func(small *dfa.Budget) (*dfa.DFA, error) { return regex.Text(src, small) })
	if errors.Is(err, dfa.ErrTooLarge) {
		if at, ok := regex.AppendText(b, src, grammar.Return); ok {
			return at, nil
		}
		d, err = regex.Text(src, b.Budget)
	}
	if err != nil {
		return grammar.Fail, err
	}
	return b.Term(b.Terminal(d), grammar.Return), nil
}

// refusal converts an error of the grammar into a *wire.Error.
func (c *Constraint) refusal(err error) error {
	var schema *jsonschema.Error
	var expression *regex.Error
	var notation *gbnf.Error
	var rules *lark.Error
	field, why := c.name(), err.Error()
	switch {
	case errors.As(err, &schema):
		why = schema.Message
		if schema.Path != "" {
			field += "." + schema.Path
		}
	case errors.As(err, &expression):
		why = expression.Message
	case errors.As(err, &notation):
		why = strings.TrimPrefix(notation.Error(), "gbnf: ")
	case errors.As(err, &rules):
		why = strings.TrimPrefix(rules.Error(), "lark: ")
	case errors.Is(err, grammar.ErrEmpty):
		why = "no text matches it"
	case errors.Is(err, grammar.ErrLeftRecursion):
		why = "a rule calls itself before it has read a character"
	case errors.Is(err, grammar.ErrTooLarge), errors.Is(err, dfa.ErrTooLarge):
		why = "it is too large or too complex"
	}
	return &wire.Error{Kind: wire.Invalid, Field: field, Err: err, Message: fmt.Sprintf("'%s' cannot be enforced: %s.", field, why)}
}
