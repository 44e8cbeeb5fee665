// Package chat renders a conversation as the prompt that a model was trained on. It runs the
// model's chat template exactly as transformers' apply_chat_template(tokenize=False) does.
//
// A [Template] is parsed once from the text in tokenizer_config.json or
// chat_template.jinja and rendered for every [Request]. Messages, tools and
// documents are ordered JSON values ([Decode] makes them), because templates print
// them and the order of keys is part of the prompt. This package also does what
// transformers does around the template: null keys are dropped, the names of a message's
// reasoning are aliased, absent tools are None, a final message is continued.
//
// [Load] finds a model's templates and special tokens among its files.
//
// Clients write conversations for an API and templates expect a few things otherwise,
// such as arguments as objects: a server passes requests through [Template.Adapt] first.
//
// The kind of an [Error] distinguishes faults of the client from faults of the template. The
// template language is package jinja. The package does not know tokens, models or HTTP.
package chat
