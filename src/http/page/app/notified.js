// Whether a failure is announced to anybody, and the way to change that.
import { html } from "../lit/lit-html.js";
import { anchor } from "../parts/pieces.js";
import { state } from "./state.js";

export const sendsMail = ({ info } = state) => info?.mail !== "log";

/** A channel works, as far as the page knows. Pure. */
export const hasChannel = ({ overview } = state) =>
  !!overview && overview.channels.count > overview.channels.failing.length;

/** Nothing announces a failure. Pure. */
export const isSilent = ({ info, overview } = state) =>
  !!info && !!overview && !sendsMail({ info }) && !hasChannel({ overview });

export const mending = () => html`${anchor("#/notifications/new", "Add a channel")}, or start the
  server with <code class="flag">--smtp-url</code> to send mail.`;
export const silence = () => html`You get no message when a run fails${
  state.overview?.channels.failing.length ? html`: ${anchor("#/notifications", "your channel fails")}.`
    : html`. ${mending()}`}`;
