// Package chat renders a conversation as the prompt that a model was trained on. It runs the
// model's chat template exactly as transformers' apply_chat_template(tokenize=False) does.
//
// A [Template] is parsed once from the text in tokenizer_config.json or chat_template.jinja and
// rendered for every [Request]. Messages, tools and documents are ordered JSON values ([Decode]
// makes them), because templates print them and the order of keys is part of the prompt. Like
// transformers, the package drops null keys, aliases the names of a message's reasoning, sets
// missing tools to None, and continues a final message.
//
// [Load] finds a model's templates and special tokens among its files.
//
// Clients write conversations for an API, and templates expect some things in another form, such as
// arguments as objects. A server therefore passes requests through [Template.Adapt] first.
//
// The kind of an [Error] distinguishes errors of the client from errors of the template. The
// template language is package jinja. The package does not depend on tokens, models or HTTP.
package chat
