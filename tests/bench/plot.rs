//! Plots of a few lines with two logarithmic axes, as SVG.

use std::fmt::Write as _;

const WIDTH: f64 = 460.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 60.0;
const BOTTOM: f64 = 50.0;
const TOP: f64 = 40.0;
const RIGHT: f64 = 20.0;
const COLOURS: [&str; 3] = ["#0b6e99", "#c2410c", "#4d7c0f"];

pub struct Line {
    pub name: &'static str,
    /// All coordinates are above zero.
    pub points: Vec<(f64, f64)>,
}

pub struct Plot<'a> {
    pub title: &'a str,
    pub x: &'a str,
    pub lines: Vec<Line>,
}

struct Axis {
    from: i32,
    to: i32,
}

impl Axis {
    fn around(values: impl Iterator<Item = f64>) -> Self {
        let (mut from, mut to) = (i32::MAX, i32::MIN);
        for value in values.filter(|value| *value > 0.0) {
            from = from.min(value.log10().floor() as i32);
            to = to.max(value.log10().ceil() as i32);
        }
        if from >= to {
            Self { from: to.min(from), to: to.min(from).saturating_add(1) }
        } else {
            Self { from, to }
        }
    }

    fn position(&self, value: f64) -> f64 {
        (value.log10() - f64::from(self.from)) / f64::from(self.to - self.from)
    }

    fn ticks(&self) -> impl Iterator<Item = (f64, String)> {
        (self.from..=self.to).map(|power| {
            let value = 10f64.powi(power);
            (value, if power < 0 { format!("{value}") } else { format!("{value:.0}") })
        })
    }
}

impl Plot<'_> {
    pub fn side_by_side(plots: &[Plot<'_>]) -> String {
        let width = WIDTH * plots.len() as f64;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {HEIGHT}\" \
             font-family=\"sans-serif\" font-size=\"11\">\n\
             <rect width=\"{width}\" height=\"{HEIGHT}\" fill=\"white\"/>\n"
        );
        for (index, plot) in plots.iter().enumerate() {
            writeln!(svg, "<g transform=\"translate({},0)\">", WIDTH * index as f64).unwrap();
            plot.draw(&mut svg);
            svg.push_str("</g>\n");
        }
        svg + "</svg>\n"
    }

    fn draw(&self, svg: &mut String) {
        let all = || self.lines.iter().flat_map(|line| line.points.iter());
        let (x_axis, y_axis) = (Axis::around(all().map(|p| p.0)), Axis::around(all().map(|p| p.1)));
        let x = |value| LEFT + (WIDTH - LEFT - RIGHT) * x_axis.position(value);
        let y = |value| HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * y_axis.position(value);
        let (low, high) = (HEIGHT - BOTTOM, TOP);
        for (value, word) in x_axis.ticks() {
            let at = x(value);
            writeln!(svg, "<path d=\"M{at:.1} {low}V{high}\" stroke=\"#ddd\"/>").unwrap();
            writeln!(svg, "<text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{word}</text>", low + 16.0)
                .unwrap();
        }
        for (value, word) in y_axis.ticks() {
            let at = y(value);
            writeln!(svg, "<path d=\"M{LEFT} {at:.1}H{}\" stroke=\"#ddd\"/>", WIDTH - RIGHT).unwrap();
            writeln!(
                svg,
                "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{word}</text>",
                LEFT - 6.0,
                at + 4.0
            )
            .unwrap();
        }
        writeln!(svg, "<text x=\"{LEFT}\" y=\"18\" font-weight=\"bold\">{}</text>", self.title).unwrap();
        let middle = LEFT + (WIDTH - LEFT - RIGHT) / 2.0;
        writeln!(
            svg,
            "<text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            HEIGHT - 12.0,
            self.x
        )
        .unwrap();
        for (index, (line, colour)) in self.lines.iter().zip(COLOURS).enumerate() {
            let path: Vec<String> =
                line.points.iter().map(|p| format!("{:.1},{:.1}", x(p.0), y(p.1))).collect();
            writeln!(
                svg,
                "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" points=\"{}\"/>",
                path.join(" ")
            )
            .unwrap();
            for point in &line.points {
                writeln!(
                    svg,
                    "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"{colour}\"/>",
                    x(point.0),
                    y(point.1)
                )
                .unwrap();
            }
            let (word_x, word_y) = (WIDTH - RIGHT - 130.0, TOP + 4.0 + 15.0 * index as f64);
            writeln!(svg, "<text x=\"{word_x}\" y=\"{word_y}\" fill=\"{colour}\">{}</text>", line.name)
                .unwrap();
        }
    }
}
