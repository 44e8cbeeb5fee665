// The settings of a conversation: system prompt and sampling.
import {$, el} from './dom.js';

// name, label, least, most, step
const fields = [
  ['temperature', 'Temperature', 0, 2, 0.1], ['top_p', 'Top p', 0, 1, 0.05], ['top_k', 'Top k', -1, 100000, 1], ['min_p', 'Min p', 0, 1, 0.01],
  ['max_tokens', 'Max tokens', 1, 10000000, 1], ['seed', 'Seed', 0, 2 ** 53 - 1, 1], ['repetition_penalty', 'Repetition', 0.1, 2, 0.05],
  ['presence_penalty', 'Presence', -2, 2, 0.1], ['frequency_penalty', 'Frequency', -2, 2, 0.1],
];

/** start makes the fields, and calls changed(system, settings) whenever one has a new valid value. */
export function start(changed) {
  for (const [name, label, min, max, step] of fields) {
    $('fields').append(el('label', {}, label, el('input', {type: 'number', name, min, max, step: step === 1 ? 1 : 'any', placeholder: 'default', inputMode: 'decimal'})));
  }
  const read = () => {
    const settings = {};
    for (const [name] of fields) {
      const input = $('fields').querySelector(`[name=${name}]`);
      if (input.value !== '' && input.validity.valid) settings[name] = Number(input.value);
    }
    const stop = $('stop-strings').value.split('\n').filter(s => s !== '');
    if (stop.length) settings.stop = stop;
    changed($('system').value.trim(), settings);
  };
  $('settings').addEventListener('input', read);
  $('settings').addEventListener('submit', e => e.preventDefault());
  $('settings').addEventListener('reset', e => {
    e.preventDefault();
    const system = $('system').value;
    show({system, settings: {}});
    read();
  });
}

/** show puts the settings of a conversation into the fields. */
export function show(chat) {
  $('system').value = chat.system || '';
  for (const [name] of fields) $('fields').querySelector(`[name=${name}]`).value = chat.settings?.[name] ?? '';
  $('stop-strings').value = (chat.settings?.stop || []).join('\n');
}
