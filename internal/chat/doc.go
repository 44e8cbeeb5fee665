// Package chat turns a conversation into the prompt a model was trained on: it
// renders the model's chat template, exactly as transformers'
// apply_chat_template(tokenize=False) does.
//
// A [Template] is parsed once from the text in tokenizer_config.json or
// chat_template.jinja and rendered for every [Request]. Messages, tools and
// documents are ordered JSON values ([Decode] makes them), because templates print
// them and the order of keys is part of the prompt. What transformers does around
// the template happens here: null keys are dropped, the names of a message's
// reasoning are aliased, absent tools are None, a final message is continued.
//
// [Load] finds a model's templates and special tokens among its files.
//
// Clients write conversations for an API and templates expect a few things otherwise,
// such as arguments as objects: a server passes requests through [Template.Adapt] first.
//
// An [Error] tells the client's or the template's fault by its kind; all of them
// mean that this conversation has no prompt. The template language itself is
// package jinja. The package knows nothing of tokens, models or HTTP.
package chat
