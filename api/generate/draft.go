package generate

import "fmt"

// SameTokens returns an error if an id stands for different tokens in t and in draft. A model with
// the tokenizer of draft then cannot guess tokens for t. Ids that only one of them has are ignored.
func (t *Text) SameTokens(draft Text) error {
	if t.Tokenizer == nil || draft.Tokenizer == nil {
		return fmt.Errorf("a draft model needs a tokenizer, as its model does: %w", cmpError(t.Missing, draft.Missing))
	}
	same, other := 0, 0
	for id := range int32(min(t.Tokenizer.VocabSize(), draft.Tokenizer.VocabSize())) {
		a, ok := t.Tokenizer.Token(id)
		b, also := draft.Tokenizer.Token(id)
		switch {
		case !ok || !also:
		case a == b:
			same++
		default:
			if other++; other > same/100+differentTokens {
				return fmt.Errorf("the draft model has another vocabulary: token %d is %q, and %q in the model", id, b, a)
			}
		}
	}
	return nil
}

// differentTokens is the number of tokens that may differ in addition to one in a hundred: special
// tokens that were renamed.
const differentTokens = 32

func cmpError(list ...error) error {
	for _, err := range list {
		if err != nil {
			return err
		}
	}
	return fmt.Errorf("there is none")
}
