package data

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
)

// GroupRecord is a record for reinforcement learning: a prompt, which is a text or messages, and
// optionally completions of it with a reward for each, or several named rewards. A reward of null
// is read as NaN: the completion does not count. A completion is a text or a list of messages.
type GroupRecord struct {
	Prompt      Passage
	Completions []Passage
	Rewards     []float64
	// RewardsBy has the rewards by name, if the record has several. Then Rewards is nil.
	RewardsBy map[string][]float64
	Tools     json.RawMessage
	// JSON is the whole record, with all keys that rewards may depend on.
	JSON json.RawMessage
}

// Group is a tokenised prompt with completions and their rewards. [GroupRecord.Tokenize] makes one.
type Group struct {
	Prompt []int32
	// Completions are the ids of each completion, without the prompt.
	Completions [][]int32
	// Rewards has one number per completion, in any unit. NaN means that the completion does not
	// count. It is nil if the record has no rewards, or named ones.
	Rewards []float64
}

// Groups is a Dataset of the records of a file for reinforcement learning. [OpenGroups] makes one.
// At reads the record from the file each time, so memory does not grow with the records. All methods
// but Close are safe for concurrent use. The file must not change until Close.
type Groups struct{ recordFile[GroupRecord] }

// OpenGroups opens a file of [GroupRecord], in the same formats as [OpenJSONL]. It finds the records but
// parses none, and fails as OpenJSONL does. Of Parquet files it reads all columns, because rewards may
// depend on any key ([GroupRecord.JSON]). The caller closes it.
func OpenGroups(path string) (*Groups, error) {
	r, err := openRecords(path, nil, parseGroup)
	if err != nil {
		return nil, err
	}
	return &Groups{*r}, nil
}

func parseGroup(line []byte) (GroupRecord, error) {
	r := GroupRecord{JSON: slices.Clone(line)}
	f, err := readFields(line)
	if err != nil {
		return r, err
	}
	if r.Tools, err = f.tools(); err != nil {
		return r, err
	}
	if !f.has("prompt") {
		return r, errors.New("got no prompt, want prompt, or prompt, completions and rewards")
	}
	if r.Prompt, err = f.passage("prompt"); err != nil {
		return r, err
	}
	if f.has("completions") != f.has("rewards") {
		return r, errors.New("got completions without rewards or rewards without completions, want both or neither")
	}
	if !f.has("completions") {
		return r, nil
	}
	return r, r.rewarded(f)
}

// rewarded reads completions and rewards.
func (r *GroupRecord) rewarded(f fields) (err error) {
	if kind := kindOf(f["completions"]); kind != "a list" {
		return fmt.Errorf("completions: got %s, want a list", kind)
	}
	var completions []json.RawMessage
	if err := json.Unmarshal(f["completions"], &completions); err != nil {
		return err
	}
	if kindOf(f["rewards"]) == "an object" {
		var named map[string]json.RawMessage
		if err := json.Unmarshal(f["rewards"], &named); err != nil {
			return err
		}
		if len(named) == 0 {
			return errors.New("rewards: got an object without a list, want some")
		}
		r.RewardsBy = map[string][]float64{}
		for name, list := range named {
			if r.RewardsBy[name], err = rewardList("rewards."+name, list, len(completions)); err != nil {
				return err
			}
		}
	} else if r.Rewards, err = rewardList("rewards", f["rewards"], len(completions)); err != nil {
		return err
	}
	for i, b := range completions {
		name := fmt.Sprintf("completions[%d]", i)
		p, err := fields{name: b}.passage(name)
		if err != nil {
			return err
		}
		if p.Messages != nil && r.Prompt.Messages == nil {
			return fmt.Errorf("got prompt as a string and %s as messages, want both as strings or both as messages", name)
		}
		r.Completions = append(r.Completions, p)
	}
	return nil
}

// rewardList reads a list of n rewards.
func rewardList(name string, list json.RawMessage, n int) ([]float64, error) {
	if kind := kindOf(list); kind != "a list" {
		return nil, fmt.Errorf("%s: got %s, want a list", name, kind)
	}
	var values []json.RawMessage
	if err := json.Unmarshal(list, &values); err != nil {
		return nil, err
	}
	if len(values) != n || n == 0 {
		return nil, fmt.Errorf("got %d completions and %d %s, want one reward for each completion", n, len(values), name)
	}
	rewards := make([]float64, n)
	for i, b := range values {
		switch kind := kindOf(b); kind {
		case "null":
			rewards[i] = math.NaN()
		case "a number":
			if err := json.Unmarshal(b, &rewards[i]); err != nil {
				return nil, fmt.Errorf("%s[%d]: got %s, want a number within the range of float64", name, i, b)
			}
		default:
			return nil, fmt.Errorf("%s[%d]: got %s, want a number, or null for none", name, i, kind)
		}
	}
	return rewards, nil
}

// Tokenize makes a Group of r. A prompt of messages is rendered with the header of an answer.
// Completions that are texts are tokenised separately from the prompt, as generated tokens are, and
// end with o.EOS. Completions of messages are rendered and end as the template says. Completions
// are cut to limit tokens, and together with the prompt to o.MaxLength. Tokenize returns an error
// if the prompt leaves no room.
func (r GroupRecord) Tokenize(e Encoder, t Template, o TextOptions, limit int) (Group, error) {
	g := Group{Rewards: r.Rewards}
	if r.Prompt.Messages != nil && t == nil {
		return g, errors.New("data: tokenize: got a conversation, but the model has no chat template")
	}
	c := ComparisonRecord{Prompt: r.Prompt, Tools: r.Tools}
	var err error
	if g.Prompt, err = c.encode(e, t, nil); err != nil {
		return g, err
	}
	if o.MaxLength > 0 {
		if len(g.Prompt) >= o.MaxLength {
			return g, fmt.Errorf("data: tokenize: the prompt has %d tokens, want less than %d", len(g.Prompt), o.MaxLength)
		}
		limit = min(limit, o.MaxLength-len(g.Prompt))
	}
	if len(g.Prompt) == 0 {
		return g, errors.New("data: tokenize: got a prompt without tokens")
	}
	for i := range r.Completions {
		ids, err := r.complete(e, t, o, &c, g.Prompt, i)
		if err != nil {
			return g, err
		}
		if ids = ids[:min(len(ids), limit)]; len(ids) == 0 {
			return g, fmt.Errorf("data: tokenize: completions[%d] has no tokens", i)
		}
		g.Completions = append(g.Completions, ids)
	}
	return g, nil
}

// complete returns the ids of a completion.
func (r *GroupRecord) complete(e Encoder, t Template, o TextOptions, c *ComparisonRecord, prompt []int32, i int) ([]int32, error) {
	p := &r.Completions[i]
	if p.Messages != nil {
		ids, err := c.encode(e, t, p)
		if err != nil {
			return nil, err
		}
		if n := commonIDs(prompt, ids); n < len(prompt) {
			return nil, fmt.Errorf("data: tokenize: the template renders the prompt with completions[%d] differently from token %d of %d, want completions as texts", i, n, len(prompt))
		}
		return ids[len(prompt):], nil
	}
	ids, _, err := e.Encode(p.Text, false)
	if err != nil {
		return nil, fmt.Errorf("data: tokenize: %w", err)
	}
	if n := len(ids); o.EOS != nil && (n == 0 || ids[n-1] != *o.EOS) {
		ids = append(ids, *o.EOS)
	}
	return ids, nil
}

// Row returns the prompt with completion k, whose tokens are the labels.
func (g Group) Row(k int) Sequence {
	return Comparison{Prompt: g.Prompt, Completions: g.Completions}.row(k)
}
