package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"unicode/utf8"

	"github.com/heftai/heft/api/generate"
)

// maxPrompts bounds the prompts of one request.
const maxPrompts = 1024

// completionRequest is the body of POST /v1/completions.
type completionRequest struct {
	common
	id      string
	created int64
	model   *generate.Model
	prompts []generate.Request // one a prompt
	texts   []string           // of the prompts, for echo
	echo    bool
}

// completion is the answer, and a chunk of it.
type completion struct {
	ID      string             `json:"id"`
	Object  string             `json:"object"`
	Created int64              `json:"created"`
	Model   string             `json:"model"`
	Choices []completionChoice `json:"choices"`
	// Usage is left out where it is nil. A nil *usage is shown as null.
	Usage any `json:"usage,omitzero"`
}

type completionChoice struct {
	Index     int                 `json:"index"`
	Text      string              `json:"text"`
	LogProbs  *completionLogProbs `json:"logprobs"`
	Finish    *string             `json:"finish_reason"`
	TokenIDs  []int32             `json:"token_ids,omitzero"`
	PromptIDs []int32             `json:"prompt_token_ids,omitzero"`
}

// Completions is POST /v1/completions.
func (s *Server) Completions(w http.ResponseWriter, r *http.Request) {
	q, err := s.readCompletion(r)
	if err != nil {
		respond(w, err)
		return
	}
	runs, err := q.model.StartAll(r.Context(), q.prompts)
	if err != nil {
		respond(w, err)
		return
	}
	defer runs.Close()
	if q.Stream {
		respond(w, s.streamCompletion(r.Context(), w, q, runs))
		return
	}
	answer, err := q.collect(r.Context(), runs)
	if err != nil {
		respond(w, err)
		return
	}
	writeJSON(w, http.StatusOK, answer)
}

func (s *Server) readCompletion(r *http.Request) (*completionRequest, error) {
	f, m, err := s.read(r)
	if err != nil {
		return nil, err
	}
	q, err := decodeCompletion(f, m)
	if err != nil {
		return nil, err
	}
	q.id, q.created = newID("cmpl-"), s.now().Unix()
	return q, nil
}

// refusedCompletion are fields of completions that cannot be honoured.
var refusedCompletion = [][2]string{{"suffix", "the model only continues."}}

func decodeCompletion(f *fields, m *generate.Model) (*completionRequest, error) {
	const usualTokens = 16
	q := &completionRequest{common: decodeCommon(f, m), model: m}
	q.Param, q.Continues = "prompt", true
	if _, given := f.get("max_tokens"); !given {
		q.MaxTokens, q.Trim = usualTokens, true
	}
	f.integer("max_tokens", &q.MaxTokens, 0, 1<<31-1)
	f.boolean("echo", &q.echo)
	if _, given := f.get("logprobs"); given {
		f.integer("logprobs", &q.TopLogProbs, 0, maxLogProbs)
		q.LogProbs, q.PromptLogProbs = true, q.echo
	}
	best := q.N
	if f.integer("best_of", &best, 1, maxN); best != q.N {
		f.fail("best_of", "'best_of' is not supported unless it equals 'n'.")
	}
	special := true
	f.boolean("add_special_tokens", &special)
	f.refuse(refusedCompletion)
	raw, ok := f.get("prompt")
	if !ok {
		f.fail("prompt", "Missing required parameter: 'prompt'.")
	}
	if f.err != nil {
		return nil, f.err
	}
	return q, q.decodePrompts(raw, special)
}

// decodePrompts reads a string, strings, ids or lists of ids.
func (q *completionRequest) decodePrompts(raw json.RawMessage, special bool) error {
	texts, lists, ok := promptsOf(raw)
	if !ok {
		return generate.Invalidf("prompt", "Invalid type for 'prompt': expected a string, a list of strings, a list of token ids or a list of such lists.")
	}
	if n := len(texts) + len(lists); n == 0 || n > maxPrompts {
		return generate.Invalidf("prompt", "Invalid value for 'prompt': %d prompts, expected 1 to %d.", n, maxPrompts)
	}
	for _, t := range texts {
		list, err := q.model.Encode(t, special)
		if err != nil {
			return generate.AsError(err, "prompt")
		}
		lists = append(lists, list)
	}
	for _, list := range lists {
		r := q.Request
		r.Prompt = list
		q.prompts = append(q.prompts, r)
	}
	if q.echo {
		q.echoTexts(texts)
	}
	return nil
}

// promptsOf tells the forms of a prompt apart. An empty list is one of no prompts.
func promptsOf(raw json.RawMessage) (texts []string, lists [][]int32, ok bool) {
	var (
		text    string
		several []*string // nil for null
		ids     []int32
	)
	if json.Unmarshal(raw, &text) == nil {
		return []string{text}, nil, true
	}
	if json.Unmarshal(raw, &several) == nil {
		for _, t := range several {
			if t == nil {
				return nil, nil, false
			}
			texts = append(texts, *t)
		}
		return texts, nil, true
	}
	if bytes.Contains(raw, []byte("null")) { // which Go reads as a zero
		return nil, nil, false
	}
	if json.Unmarshal(raw, &ids) == nil {
		return nil, [][]int32{ids}, true
	}
	err := json.Unmarshal(raw, &lists)
	return nil, lists, err == nil
}

// echoTexts keeps what stands before each answer: the prompt as it was given, or decoded.
func (q *completionRequest) echoTexts(texts []string) {
	for i, p := range q.prompts {
		switch {
		case texts != nil:
			q.texts = append(q.texts, texts[i])
		case q.model.Tokenizer != nil:
			q.texts = append(q.texts, q.model.Tokenizer.Decode(p.Prompt, !q.ShowSpecial))
		default:
			q.texts = append(q.texts, "")
		}
	}
}

// before is the text that choice i begins with.
func (q *completionRequest) before(i int) string {
	if !q.echo {
		return ""
	}
	return q.texts[i/q.N]
}

func (q *completionRequest) envelope() completion {
	return completion{ID: q.id, Object: "text_completion", Created: q.created, Model: q.model.Name, Choices: []completionChoice{}}
}

func (q *completionRequest) collect(ctx context.Context, runs *generate.Runs) (*completion, error) {
	answers, err := collect(ctx, runs, len(q.prompts)*q.N, q.N, nil)
	if err != nil {
		return nil, err
	}
	out := q.envelope()
	for i := range answers {
		a := &answers[i]
		c := completionChoice{Index: i, Text: q.before(i) + a.text.String(), Finish: &a.finish}
		if q.LogProbs {
			c.LogProbs = q.logProbs(i, a.prompt, a.tokens)
		}
		if q.ReturnIDs {
			c.TokenIDs, c.PromptIDs = ids(a.tokens), q.prompts[i/q.N].Prompt
		}
		out.Choices = append(out.Choices, c)
	}
	out.Usage = newUsage(runs.Usage())
	return &out, nil
}

func (q *completionRequest) logProbs(i int, prompt, tokens []generate.Token) *completionLogProbs {
	l := &completionLogProbs{Tokens: []string{}, LogProb: []*float32{}, Top: []map[string]float32{}, Offset: []int{}}
	l.add(q.model, prompt, 0, true)
	l.add(q.model, tokens, utf8.RuneCountInString(q.before(i)), false)
	return l
}

// completionStream sends one answer in chunks.
type completionStream struct {
	*completionRequest
	out   *events
	begun []bool // of each choice
}

func (s *Server) streamCompletion(ctx context.Context, w http.ResponseWriter, q *completionRequest, runs *generate.Runs) error {
	st := &completionStream{q, newEvents(w), make([]bool, len(q.prompts)*q.N)}
	if err := st.out.each(ctx, runs, s.keepAlive, st.part); err != nil {
		return err
	}
	if q.IncludeUsage {
		end := q.envelope()
		end.Usage = newUsage(runs.Usage())
		if err := st.out.send(end); err != nil {
			return errSent
		}
	}
	_ = st.out.done() // the last thing that is sent
	return nil
}

// part sends what one choice has gained, and apart from it that it has ended.
func (s *completionStream) part(p generate.Part) error {
	i := p.Run*s.N + p.Choice
	c := completionChoice{Index: i, Text: p.Text}
	first := !s.begun[i]
	s.begun[i] = true
	if first {
		c.Text = s.before(i) + c.Text
	}
	if s.LogProbs && len(p.Tokens)+len(p.Prompt) > 0 {
		c.LogProbs = s.logProbs(i, p.Prompt, p.Tokens)
	}
	if s.ReturnIDs {
		c.TokenIDs = ids(p.Tokens)
		if first {
			c.PromptIDs = s.prompts[p.Run].Prompt
		}
	}
	if c.Text != "" || c.LogProbs != nil || len(c.TokenIDs) > 0 || c.PromptIDs != nil {
		if err := s.send(c); err != nil {
			return err
		}
	}
	if p.Finish == "" {
		return nil
	}
	finish := string(p.Finish)
	return s.send(completionChoice{Index: i, Finish: &finish})
}

func (s *completionStream) send(c completionChoice) error {
	chunk := s.envelope()
	chunk.Choices = append(chunk.Choices, c)
	if s.IncludeUsage {
		chunk.Usage = (*usage)(nil)
	}
	return s.out.send(chunk)
}
