package data

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"
)

// ComparisonRecord is a record of preference data in one of TRL's forms: a prompt with a chosen and
// a rejected completion, or with one completion and a label that says whether it is desirable. All
// are texts, or all are lists of messages. Without a prompt, or with a text prompt next to lists of
// messages, the prompt is the common beginning of chosen and rejected.
type ComparisonRecord struct {
	Prompt      Passage
	Completions []Passage // chosen, then rejected; or one
	Tools       json.RawMessage
	Label       *bool   // of one completion
	Margin      float64 // by which a reward model should prefer chosen
}

// Passage is a text or, if Messages is not nil, a part of a conversation.
type Passage struct {
	Text     string
	Messages []json.RawMessage
}

// Comparison is a tokenised prompt with tokenised completions to compare.
type Comparison struct {
	Prompt      []int32
	Completions [][]int32
	// Desirable is the judgement of a single completion.
	Desirable bool
	Margin    float64
}

// Judged splits a comparison of a chosen and a rejected completion into two comparisons of one
// completion each. It returns a comparison of one completion unchanged.
func (c Comparison) Judged() []Comparison {
	if len(c.Completions) == 1 {
		return []Comparison{c}
	}
	var all []Comparison
	for i, ids := range c.Completions {
		all = append(all, Comparison{Prompt: c.Prompt, Completions: [][]int32{ids}, Desirable: i == 0})
	}
	return all
}

// Comparisons is a Dataset of the preference records of a JSONL, CSV or Parquet file. It reads a record when it is
// requested, and is safe for concurrent use.
type Comparisons struct{ recordFile[ComparisonRecord] }

// OpenComparisons opens a file and finds its records. It parses none; At does. The caller closes
// it.
func OpenComparisons(path string) (*Comparisons, error) {
	r, err := openRecords(path, comparisonKeys, parseComparison)
	if err != nil {
		return nil, err
	}
	return &Comparisons{*r}, nil
}

// comparisonKeys are the keys that a comparison may have.
var comparisonKeys = []string{"prompt", "chosen", "rejected", "completion", "label", "margin", "tools", "conversations", "question", "instruction", "query", "input"}

func parseComparison(line []byte) (ComparisonRecord, error) {
	var r ComparisonRecord
	f, err := readFields(line)
	if err != nil {
		return r, err
	}
	if r.Tools, err = f.tools(); err != nil {
		return r, err
	}
	if r.Margin, err = f.number("margin"); err != nil {
		return r, err
	}
	if f.has("completion") && !f.has("chosen", "rejected") {
		return r, r.judged(f)
	}
	if !f.has("chosen") || !f.has("rejected") {
		return r, errors.New("want chosen and rejected, with or without prompt, or prompt, completion and label")
	}
	for _, name := range []string{"chosen", "rejected"} {
		p, err := f.answer(name)
		if err != nil {
			return r, err
		}
		r.Completions = append(r.Completions, p)
	}
	if err := r.alike("chosen", r.Completions[0], "rejected", r.Completions[1]); err != nil {
		return r, err
	}
	if f.has("conversations") && !f.has("prompt") {
		return r, r.continued(f)
	}
	for _, name := range []string{"question", "instruction", "query", "input"} {
		if f.has(name) && !f.has("prompt") && r.Completions[0].Messages == nil {
			return r, fmt.Errorf("got %s without prompt, so that completions would have none: rename it to prompt", name)
		}
	}
	if !f.has("prompt") || kindOf(f["prompt"]) == "a string" && r.Completions[0].Messages != nil { // a text prompt repeats a message
		return r, r.findPrompt()
	}
	if r.Prompt, err = f.passage("prompt"); err != nil {
		return r, err
	}
	return r, r.alike("prompt", r.Prompt, "chosen", r.Completions[0])
}

// continued reads ShareGPT's conversations as the prompt of LLaMA-Factory's chosen and rejected
// messages.
func (r *ComparisonRecord) continued(f fields) error {
	var before Record
	if err := before.shareGPT(f); err != nil {
		return err
	}
	r.Prompt.Messages = before.Messages
	return r.alike("conversations", r.Prompt, "chosen", r.Completions[0])
}

// judged reads a prompt, a completion and its label.
func (r *ComparisonRecord) judged(f fields) error {
	if !f.has("prompt") || !f.has("label") {
		return errors.New("got a completion without prompt or label, want prompt, completion and label")
	}
	if kind := kindOf(f["label"]); kind != "a boolean" {
		return fmt.Errorf("label: got %s, want true or false", kind)
	}
	r.Label = new(bool)
	if err := json.Unmarshal(f["label"], r.Label); err != nil {
		return err
	}
	completion, err := f.passage("completion")
	if err != nil {
		return err
	}
	r.Completions = []Passage{completion}
	if r.Prompt, err = f.passage("prompt"); err != nil {
		return err
	}
	return r.alike("prompt", r.Prompt, "completion", completion)
}

// answer returns a passage, or a single message of LLaMA-Factory's.
func (f fields) answer(name string) (p Passage, err error) {
	if kindOf(f[name]) != "an object" {
		return f.passage(name)
	}
	m, err := sharedTurn(f[name])
	if err != nil {
		return p, fmt.Errorf("%s: %w", name, err)
	}
	return Passage{Messages: []json.RawMessage{m}}, nil
}

// passage returns a string, or a list of messages.
func (f fields) passage(name string) (p Passage, err error) {
	switch kind := kindOf(f[name]); kind {
	case "a list":
		p.Messages, err = f.messages(name)
	case "a string":
		var s *string
		if s, err = f.text(name); err == nil {
			p.Text = *s
		}
	default:
		err = fmt.Errorf("%s: got %s, want a string or a list of messages", name, kind)
	}
	return p, err
}

// alike returns an error if one of two passages is a text and the other one a list of messages.
func (r *ComparisonRecord) alike(a string, x Passage, b string, y Passage) error {
	if (x.Messages == nil) == (y.Messages == nil) {
		return nil
	}
	kinds := map[bool]string{true: "a string", false: "messages"}
	return fmt.Errorf("got %s as %s and %s as %s, want both as strings or both as messages", a, kinds[x.Messages == nil], b, kinds[y.Messages == nil])
}

// findPrompt splits off the common beginning of both completions as the prompt. A completion keeps
// at least one message, or one character. A space between the prompt and texts belongs to the
// texts.
func (r *ComparisonRecord) findPrompt() error {
	x, y := &r.Completions[0], &r.Completions[1]
	if x.Messages == nil {
		n := common(x.Text, y.Text)
		if shorter := min(len(x.Text), len(y.Text)); n == shorter {
			_, last := utf8.DecodeLastRuneInString(x.Text[:n])
			n -= last
		} else if n > 0 && x.Text[n-1] == ' ' {
			n--
		}
		r.Prompt.Text, x.Text, y.Text = x.Text[:n], x.Text[n:], y.Text[n:]
		return nil
	}
	n, shorter := 0, min(len(x.Messages), len(y.Messages))
	for n < shorter-1 && sameJSON(x.Messages[n], y.Messages[n]) {
		n++
	}
	if n == 0 {
		return errors.New("chosen and rejected begin with different messages: want the same prompt in both, or a prompt")
	}
	r.Prompt.Messages, x.Messages, y.Messages = x.Messages[:n:n], x.Messages[n:], y.Messages[n:]
	return nil
}

// sameJSON reports whether two values are equal. The order of keys does not matter.
func sameJSON(a, b json.RawMessage) bool {
	var x, y any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return false
	}
	p, errX := json.Marshal(x)
	q, errY := json.Marshal(y)
	return errX == nil && errY == nil && slices.Equal(p, q)
}

// Tokenize makes a Comparison of r. It tokenises the prompt together with each completion.
// Completions begin at the first token where any of them differs from the prompt alone. o.EOS ends
// completions that are texts. It returns an error if the prompt leaves no room for completions
// within o.MaxLength.
func (r ComparisonRecord) Tokenize(e Encoder, t Template, o TextOptions) (Comparison, error) {
	c := Comparison{Desirable: r.Label != nil && *r.Label, Margin: r.Margin}
	if r.Prompt.Messages != nil && t == nil {
		return c, errors.New("data: tokenize: got a conversation, but the model has no chat template")
	}
	prompt, err := r.encode(e, t, nil)
	if err != nil {
		return c, err
	}
	border := len(prompt)
	var whole [][]int32
	for i := range r.Completions {
		ids, err := r.encode(e, t, &r.Completions[i])
		if err != nil {
			return c, err
		}
		if n := len(ids); r.Prompt.Messages == nil && o.EOS != nil && (n == 0 || ids[n-1] != *o.EOS) {
			ids = append(ids, *o.EOS)
		}
		whole = append(whole, ids)
		border = min(border, commonIDs(prompt, ids))
	}
	if o.MaxLength > 0 && border >= o.MaxLength {
		return c, fmt.Errorf("data: tokenize: the prompt has %d tokens, want less than %d", border, o.MaxLength)
	}
	c.Prompt = prompt[:border:border]
	room := o.MaxLength - border
	if o.Judged {
		room = o.MaxLength
	}
	for _, ids := range whole {
		completion := ids[border:]
		if o.MaxLength > 0 {
			completion = completion[:min(len(completion), room)]
		}
		if len(completion) == 0 {
			return c, errors.New("data: tokenize: got a completion without tokens")
		}
		c.Completions = append(c.Completions, completion)
	}
	return c, nil
}

// encode returns the ids of the prompt, or of the prompt and a completion.
func (r *ComparisonRecord) encode(e Encoder, t Template, completion *Passage) ([]int32, error) {
	text, special := r.Prompt.Text, true
	if completion != nil {
		text += completion.Text
	}
	if r.Prompt.Messages != nil {
		special = false
		messages := r.Prompt.Messages
		if completion != nil {
			messages = slices.Concat(messages, completion.Messages)
		}
		var err error
		if text, err = t.Render(messages, r.Tools, completion == nil); err != nil {
			return nil, fmt.Errorf("data: render: %w", err)
		}
	}
	ids, _, err := e.Encode(text, special)
	if err != nil {
		return nil, fmt.Errorf("data: tokenize: %w", err)
	}
	return ids, nil
}

// commonIDs returns the length of the longest common prefix.
func commonIDs(a, b []int32) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// ComparisonBatch is a batch of comparisons, row by row: the first completion of every prompt, then
// the second ones. The labels are those of completions.
type ComparisonBatch struct {
	TokenBatch
	Prompts int
	// Desirable is the judgement of each row. Mismatched has the prompts with the completion of the
	// previous row, for KTO. Both are nil in batches of [PadComparisons].
	Desirable  []bool
	Mismatched *TokenBatch
	// Margins has the margin of each prompt. It is nil if all are 0.
	Margins []float32
}

// PadJudged returns the Collate that pads comparisons of one completion to the longest of their
// batch. It cuts rows to length tokens, unless length is 0.
func PadJudged(p Padding, length int) Collate[Comparison, ComparisonBatch] {
	pad, cut := PadTokens(p), TextOptions{MaxLength: length}
	return func(samples []Comparison) (ComparisonBatch, error) {
		b := ComparisonBatch{Prompts: len(samples)}
		var rows, mismatched []Sequence
		for i, c := range samples {
			other := samples[(i+len(samples)-1)%len(samples)]
			if len(c.Completions) != 1 || len(other.Completions) != 1 {
				return b, fmt.Errorf("data: collate: comparison %d: got %d completions, want one", i, len(c.Completions))
			}
			b.Desirable = append(b.Desirable, c.Desirable)
			rows = append(rows, cut.finish(c.row(0)))
			s := Comparison{Prompt: c.Prompt, Completions: other.Completions}.row(0)
			mismatched = append(mismatched, cut.finish(s))
		}
		var err error
		if b.TokenBatch, err = pad(rows); err != nil {
			return b, err
		}
		kl, err := pad(mismatched)
		b.Mismatched = &kl
		return b, err
	}
}

// PadComparisons returns the Collate that pads comparisons to the longest of their batch. They must
// have equal numbers of completions.
func PadComparisons(p Padding) Collate[Comparison, ComparisonBatch] {
	pad := PadTokens(p)
	return func(samples []Comparison) (ComparisonBatch, error) {
		b := ComparisonBatch{Prompts: len(samples)}
		if slices.ContainsFunc(samples, func(c Comparison) bool { return c.Margin != 0 }) {
			for _, c := range samples {
				b.Margins = append(b.Margins, float32(c.Margin))
			}
		}
		var rows []Sequence
		for k := range completionsOf(samples) {
			for i, c := range samples {
				if len(c.Completions) != len(samples[0].Completions) {
					return b, fmt.Errorf("data: collate: comparison %d: got %d completions, want %d", i, len(c.Completions), len(samples[0].Completions))
				}
				if k < len(c.Completions) {
					rows = append(rows, c.row(k))
				}
			}
		}
		var err error
		b.TokenBatch, err = pad(rows)
		return b, err
	}
}

// row returns the prompt with completion k, whose tokens are the labels.
func (c Comparison) row(k int) Sequence {
	s := Sequence{IDs: slices.Concat(c.Prompt, c.Completions[k])}
	s.Labels = append(filled(len(c.Prompt), IgnoreLabel), c.Completions[k]...)
	return s
}

// completionsOf returns the largest number of completions.
func completionsOf(samples []Comparison) int {
	n := 0
	for _, c := range samples {
		n = max(n, len(c.Completions))
	}
	return n
}
