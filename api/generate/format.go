package generate

// format holds what follows from a model's notation of reasoning and calls.
type format struct {
	hidden map[int32]bool // special tokens that are not markers
}

// answers returns the model's format. The first call computes it. The model must have a tokenizer
// and a Chat.
func (m *Model) answers() *format {
	m.formatOnce.Do(func() {
		m.format.hidden = map[int32]bool{}
		for id, content := range m.Tokenizer.SpecialTokens() {
			if m.Tokenizer.Decode([]int32{id}, true) == "" && !m.Chat.Visible(content) {
				m.format.hidden[id] = true
			}
		}
	})
	return &m.format
}
