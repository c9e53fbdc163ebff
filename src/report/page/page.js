// Fills the places of the page, each of which names its figure in data-figure, from the data.
'use strict';

const series = (name, key, colourName, metrics) => ({name, colour: colourName,
  points: metrics.steps.map((step, i) => [step, metrics[key][i]]),
  band: metrics.low?.[key] && metrics.steps.map((step, i) => [step, metrics.low[key][i], metrics.high[key][i]])});

const percent = value => +(100 * value).toPrecision(4) + ' %';

const figures = {
  loss(box, run) {
    const all = [series('training loss', 'loss', 'part-0', run.metrics)];
    if (run.evaluations) {
      all.push({name: 'evaluation loss', colour: 'part-1', points: run.evaluations.map(e => [e.step, e.loss])});
    }
    curves(box, all, {title: 'Loss by step', x: 'step', y: 'loss', whole: true});
  },
  accuracy(box, run) {
    const all = run.accuracy.map((line, i) => ({...line, colour: `part-${i % 7}`}));
    curves(box, all, {title: 'Accuracy by step', x: 'step', y: 'share', whole: true, format: percent});
  },
  rate(box, run) {
    const all = [series('samples per second', 'samples_per_second', 'part-2', run.metrics)];
    if (run.predicted_samples_per_second) {
      const steps = run.metrics.steps, rate = run.predicted_samples_per_second;
      all.push({name: 'predicted', colour: 'part-6', points: [[steps[0], rate], [steps.at(-1), rate]]});
    }
    curves(box, all, {title: 'Samples per second by step', x: 'step', y: 'samples per second', whole: true, zero: true});
  },
  learning_rate(box, run) {
    curves(box, [series('learning rate', 'learning_rate', 'part-4', run.metrics)],
      {title: 'Learning rate by step', x: 'step', y: 'learning rate', whole: true, zero: true});
  },
  loss_scale(box, run) {
    curves(box, [{...series('loss scale', 'loss_scale', 'part-3', run.metrics), steps: true}],
      {title: 'Loss scale by step', x: 'step', y: 'loss scale', whole: true, zero: true});
  },
  memory(box, run) {
    bars(box, run.memory.parts, run.memory.rows, {title: 'Memory of each device', format: bytes});
  },
  memory_over_time(box, run) {
    const all = run.memory_over_time.map((device, i) =>
      ({name: device.name, colour: `part-${i % 7}`, steps: true, points: device.points}));
    curves(box, all, {title: 'Memory over time', x: 'seconds of the steps shown', y: 'memory in use', zero: true, base: 2, from: 0, format: bytes,
      at: duration});
  },
  prediction(box, run) {
    const rows = run.prediction.map(p => ({name: p.name, parts: [p.value]}));
    bars(box, ['samples per second'], rows, {title: 'Predicted against measured', format: number});
  },
  comparison(box, runs) {
    const all = runs.map((run, i) => ({name: run.name, colour: `part-${i % 7}`, points: run.steps.map((step, k) => [step, run.loss[k]])}));
    curves(box, all, {title: 'Loss of all runs by step', x: 'step', y: 'loss', whole: true});
  },
  accuracies(box, runs) {
    const all = runs.map((run, i) => ({...run, colour: `part-${i % 7}`}));
    curves(box, all, {title: 'Accuracy of all runs by step', x: 'step', y: 'share', whole: true, format: percent});
  },
  timeline(box, trace) { timeline(box, trace); },
  published(box, rows) { deviations(box, rows, 0.2); },
};

const data = JSON.parse(document.getElementById('data').textContent);
const places = {timeline: 'timelines', published: 'published', comparison: 'comparison', accuracies: 'accuracies'};
const fill = box => {
  const [kind, index] = box.dataset.figure.split('/');
  figures[kind](box, data[places[kind] || 'runs'][index]);
};
for (const table of document.querySelectorAll('table:not(.matrix)')) sortable(table);
for (const box of document.querySelectorAll('[data-figure]')) fill(box);
document.documentElement.dataset.ready = 'yes';
