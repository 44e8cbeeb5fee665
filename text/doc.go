// Package text converts text to token ids and conversations to prompts, and parses the answers of
// chat models.
//
// A [Tokenizer] encodes and decodes as defined by a model's tokenizer.json or another vocabulary. A
// [Chat] has the model's chat templates. [Chat.Render] renders a [Conversation] as the prompt that
// the model was trained on. [Chat.Parse] splits a generated answer into content, reasoning and tool
// calls. [Open] reads both from a model's folder:
//
//	tokenizer, chat, err := text.Open("models/qwen3")
//	prompt, err := chat.Render(text.Conversation{
//		Messages:            []text.Message{text.User("Who are you?")},
//		AddGenerationPrompt: true,
//	})
//	ids, err := tokenizer.Encode(prompt, text.EncodeOptions{})
//	// generate ids with package dispatch …
//	answer := chat.Parse(tokenizer.Decode(generated, false), text.ParseOptions{Prompt: prompt})
//
// A rendered prompt already contains the special tokens that the template writes, so it is
// encoded without EncodeOptions.AddSpecialTokens.
//
// Ids are those of Hugging Face tokenizers and prompts those of transformers'
// apply_chat_template. Tokenizer and Chat do not change after they are read and may be used by
// any number of goroutines. A [Decoder] and a [Parser] belong to one text each and to one
// goroutine.
//
// The package knows nothing of weights, requests or HTTP.
package text
