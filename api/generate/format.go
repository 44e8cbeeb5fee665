package generate

// format is what follows from how a model writes reasoning and calls.
type format struct {
	hidden map[int32]bool // special tokens that are not markers
}

// answers is the model's format, found when it is first needed. There are a tokenizer and a Chat.
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
